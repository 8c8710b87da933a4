{{/*
The Secret with a component's certificate, where kubetide does not make it itself; empty otherwise.
*/}}
{{- define "kubetide.certificateSecret" -}}
{{- $given := .root.Values.certificates.given -}}
{{- if hasKey $given .component -}}
{{- if eq .root.Values.certificates.source "cert-manager" -}}kubetide-{{ .component }}-certificate
{{- else if eq .root.Values.certificates.source "given" -}}
{{- required (printf "certificates.given.%s: the name of a Secret with ca.crt, tls.crt and tls.key is needed" .component) (get $given .component) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The flags that make a component read its certificate from that Secret.
*/}}
{{- define "kubetide.certificateArgs" -}}
{{- $folder := "/etc/kubetide/certificates" -}}
{{- if include "kubetide.certificateSecret" . -}}
{{- if eq .component "admission" -}}
client-ca-file: {{ $folder }}/ca.crt
tls-cert-file: {{ $folder }}/tls.crt
tls-private-key: {{ $folder }}/tls.key
generate-certificates: "false"
{{- else if eq .component "metrics" -}}
tls-cert-file: {{ $folder }}/tls.crt
tls-private-key-file: {{ $folder }}/tls.key
cert-dir: {{ $folder }}
{{- else -}}
webhook-cert-dir: {{ $folder }}
{{- end -}}
{{- else -}}
{}
{{- end -}}
{{- end -}}
