{{/*
The values of a component: what holds for all, its own key, and the name that upstream's chart gave it on top.
*/}}
{{- define "kubetide.valuesOf" -}}
{{- $aliases := dict "admission" "admissionController" "slo" "manager" "node" "koordlet" -}}
{{- $own := mustMergeOverwrite (deepCopy .root.Values.defaults) (deepCopy (index .root.Values .component | default dict)) -}}
{{- with get $aliases .component -}}
{{- $own = mustMergeOverwrite $own (deepCopy (index $.root.Values . | default dict)) -}}
{{- end -}}
{{- if not (kindIs "invalid" $own.replicaCount) -}}{{- $_ := set $own "replicas" $own.replicaCount -}}{{- end -}}
{{- toYaml $own -}}
{{- end -}}

{{/*
The objects of all components as `kubetide manifests` prints them, with this release's namespace and image.
*/}}
{{- define "kubetide.objects" -}}
{{- $image := printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- $all := .Files.Get "files/objects.yaml" | replace "RELEASE-NAMESPACE" .Release.Namespace | replace "RELEASE-IMAGE" $image | fromYaml -}}
{{- with .Values.watchNamespace -}}
{{- $narrow := $.Files.Get "files/one-namespace.yaml" | replace "RELEASE-NAMESPACE" $.Release.Namespace | replace "RELEASE-IMAGE" $image | replace "WATCHED-NAMESPACE" . | fromYaml -}}
{{- $all = mustMergeOverwrite $all $narrow -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/*
Whether an object is there already and not of this release: made by Koordinator, by hand, or kept by a release of another name.
*/}}
{{- define "kubetide.ofAnother" -}}
{{- with lookup .apiVersion .kind (.namespace | default "") .name -}}
{{- $made := .metadata.annotations | default dict -}}
{{- if not (and (eq (get $made "meta.helm.sh/release-name") $.root.Release.Name) (eq (get $made "meta.helm.sh/release-namespace") $.root.Release.Namespace)) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The ConfigMap of SLOs: what the values say, then what is in the cluster, then what the manifests begin with. It outlives the release.
*/}}
{{- define "kubetide.configMap" -}}
{{- $object := deepCopy .object -}}
{{- with lookup "v1" "ConfigMap" $object.metadata.namespace $object.metadata.name -}}
{{- $_ := set $object "data" (mustMergeOverwrite $object.data (.data | default dict)) -}}
{{- end -}}
{{- range $key, $value := .config | default dict -}}
{{- $_ := set $object.data $key (kindIs "string" $value | ternary $value (toJson $value)) -}}
{{- end -}}
{{- $_ := set $object.metadata "annotations" (dict "helm.sh/resource-policy" "keep") -}}
{{- toYaml $object -}}
{{- end -}}

{{/*
The components that are switched on, in the order of the manifests.
*/}}
{{- define "kubetide.enabled" -}}
{{- $on := list -}}
{{- range $component := keys (.Files.Get "files/objects.yaml" | fromYaml) | sortAlpha -}}
{{- $values := include "kubetide.valuesOf" (dict "root" $ "component" $component) | fromYaml -}}
{{- if $values.enabled -}}{{- $on = append $on $component -}}{{- end -}}
{{- end -}}
{{- toYaml (dict "components" $on) -}}
{{- end -}}

{{- define "kubetide.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Arguments of a container with `extraArgs` laid over: a flag that is there is replaced, null removes it, others are added.
*/}}
{{- define "kubetide.args" -}}
{{- $args := list -}}
{{- $extra := .extra -}}
{{- range $arg := .args -}}
{{- $name := trimPrefix "--" (splitList "=" $arg | first) -}}
{{- if not (and (hasPrefix "--" $arg) (hasKey $extra $name)) -}}{{- $args = append $args $arg -}}{{- end -}}
{{- end -}}
{{- range $name := keys $extra | sortAlpha -}}
{{- $value := get $extra $name -}}
{{- if not (kindIs "invalid" $value) -}}{{- $args = append $args (printf "--%s=%v" $name $value) -}}{{- end -}}
{{- end -}}
{{- toYaml (dict "args" $args) -}}
{{- end -}}

{{/*
A workload of the manifests with the values of its component laid over.
*/}}
{{- define "kubetide.workload" -}}
{{- $root := .root -}}{{- $values := .values -}}{{- $workload := deepCopy .object -}}
{{- $pod := $workload.spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- $image := mustMergeOverwrite (deepCopy $root.Values.image) ($values.image | default dict) -}}
{{- $_ := set $container "image" (printf "%s:%s" $image.repository ($image.tag | default $root.Chart.AppVersion)) -}}
{{- $_ := set $container "imagePullPolicy" $image.pullPolicy -}}
{{- $sizes := $root.Files.Get "files/sizes.yaml" | fromYaml -}}
{{- $_ := set $container "resources" ($values.resources | default (get (get $sizes $root.Values.size) .component)) -}}
{{- $extra := mustMergeOverwrite (include "kubetide.certificateArgs" . | fromYaml) (include "kubetide.relatedArgs" . | fromYaml) (include "kubetide.shardArgs" . | fromYaml) (include "kubetide.tracingArgs" . | fromYaml) (include "kubetide.namedArgs" . | fromYaml) ($values.extraArgs | default dict) -}}
{{- $_ := set $container "args" (include "kubetide.args" (dict "args" $container.args "extra" $extra) | fromYaml).args -}}
{{- with $values.extraEnv -}}{{- $_ := set $container "env" (concat ($container.env | default list) .) -}}{{- end -}}
{{- with $values.extraVolumeMounts -}}{{- $_ := set $container "volumeMounts" (concat ($container.volumeMounts | default list) .) -}}{{- end -}}
{{- with $values.extraVolumes -}}{{- $_ := set $pod "volumes" (concat ($pod.volumes | default list) .) -}}{{- end -}}
{{- with $values.securityContext -}}{{- $_ := set $container "securityContext" (mustMergeOverwrite $container.securityContext .) -}}{{- end -}}
{{- with $values.podSecurityContext -}}{{- $_ := set $pod "securityContext" . -}}{{- end -}}
{{- if eq $workload.kind "Deployment" -}}
{{- $_ := set $workload.spec "replicas" (int $values.replicas) -}}
{{- if $values.affinity -}}{{- $_ := set $pod "affinity" $values.affinity -}}
{{- else if gt (int $values.replicas) 1 -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $workload.spec.selector.matchLabels) -}}
{{- $preferred := list (dict "weight" 100 "podAffinityTerm" $term) -}}
{{- $_ := set $pod "affinity" (dict "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" $preferred)) -}}
{{- end -}}
{{- else -}}
{{- with $values.affinity -}}{{- $_ := set $pod "affinity" . -}}{{- end -}}
{{- end -}}
{{- with $values.priorityClassName -}}{{- $_ := set $pod "priorityClassName" . -}}{{- end -}}
{{- with $values.nodeSelector -}}{{- $_ := set $pod "nodeSelector" . -}}{{- end -}}
{{- with $values.tolerations -}}{{- $_ := set $pod "tolerations" . -}}{{- end -}}
{{- with $values.topologySpreadConstraints -}}{{- $_ := set $pod "topologySpreadConstraints" . -}}{{- end -}}
{{- with $root.Values.imagePullSecrets -}}{{- $_ := set $pod "imagePullSecrets" . -}}{{- end -}}
{{- with (include "kubetide.certificateSecret" .) -}}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts (dict "name" "certificates" "mountPath" "/etc/kubetide/certificates" "readOnly" true)) -}}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "certificates" "secret" (dict "secretName" .))) -}}
{{- end -}}
{{- $meta := $workload.spec.template.metadata -}}
{{- $_ := set $meta "labels" (mustMergeOverwrite (dict) $root.Values.commonLabels ($values.podLabels | default dict) $meta.labels) -}}
{{- $annotations := mustMergeOverwrite (dict) $root.Values.commonAnnotations ($values.podAnnotations | default dict) -}}
{{- if $annotations -}}{{- $_ := set $meta "annotations" $annotations -}}{{- end -}}
{{- toYaml $workload -}}
{{- end -}}

{{/*
Flags that have a value of their own, as the charts of upstream have it: feature gates and the verbosity of logs.
*/}}
{{- define "kubetide.namedArgs" -}}
{{- $args := dict -}}
{{- with .values.features -}}{{- $_ := set $args "feature-gates" . -}}{{- end -}}
{{- if .values.log -}}{{- if not (kindIs "invalid" .values.log.level) -}}{{- $_ := set $args "v" (toString .values.log.level) -}}{{- end -}}{{- end -}}
{{- toYaml $args -}}
{{- end -}}

{{/*
Where spans go; the dashboard decides nothing and sends none.
*/}}
{{- define "kubetide.tracingArgs" -}}
{{- $tracing := .root.Values.tracing -}}
{{- if and $tracing.endpoint (ne .component "dashboard") -}}
tracing-endpoint: {{ $tracing.endpoint | quote }}
tracing-ratio: {{ $tracing.ratio | quote }}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{/*
The flag that lets replicas share the work, for the components that know it.
*/}}
{{- define "kubetide.shardArgs" -}}
{{- $flags := dict "hpa" "hpa-shards" "recommender" "shards" "updater" "shards" "slo" "shards" -}}
{{- if and .values.shards (hasKey $flags .component) -}}
{{ get $flags .component }}: {{ .values.shards }}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{/*
Flags that follow from what else is installed: agents stream to the metrics server and the autoscaler listens to it, with
enough workers for many that are woken together; the dashboard knows its name.
*/}}
{{- define "kubetide.relatedArgs" -}}
{{- $metrics := include "kubetide.valuesOf" (dict "root" .root "component" "metrics") | fromYaml -}}
{{- if and .root.Values.freshSignals.enabled $metrics.enabled (eq .component "hpa") -}}
hpa-watch-usage: "true"
concurrent-horizontal-pod-autoscaler-syncs: "20"
{{- else if and .root.Values.freshSignals.enabled $metrics.enabled (eq .component "node") -}}
metrics-stream: "true"
{{- else if and (eq .component "dashboard") .values.ingress.enabled -}}
allowed-host: {{ .values.ingress.host }}
{{- else -}}
{}
{{- end -}}
{{- end -}}
