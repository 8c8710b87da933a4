"""Which server, as whom: kubeconfig files, or the identity a pod is given.

Files listed in KUBECONFIG are merged as kubectl does: the first one that names a cluster, user, context or the
current context counts, and relative paths are relative to the file they stand in. Without a kubeconfig, a pod uses
its service account.
"""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import msgspec

from kubetide.api.values.codec import convert, parse_yaml, without_nulls
from kubetide.clock import Clock
from kubetide.errors import DecodeError, InvalidInput
from kubetide.kube.client.credentials import (
    EXEC_VERSIONS,
    Credentials,
    ExecConfig,
    ExecPlugin,
    Headers,
    Static,
    TokenFile,
    WithHeaders,
    basic,
    bearer,
)
from kubetide.kube.client.tls import Certificate, Pem, ServerTrust

# The shape of a kubeconfig: what kubetide reads of it must have the type that kubectl expects, or it is refused.


class _Shape(msgspec.Struct, rename="kebab", frozen=True, gc=False):
    pass


class ClusterShape(_Shape, frozen=True, kw_only=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[dict[str, Any]] = []


class ExecVariable(_Shape, frozen=True, kw_only=True):
    name: str = ""
    value: str = ""


class ExecShape(_Shape, frozen=True, kw_only=True, rename="camel"):
    api_version: str = ""
    command: str = ""
    args: list[str] = []
    env: list[ExecVariable] = []
    install_hint: str = ""
    interactive_mode: str = ""
    provide_cluster_info: bool = False


class UserShape(_Shape, frozen=True, kw_only=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    exec: ExecShape | None = None
    auth_provider: dict[str, Any] | None = None
    as_: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}


class ContextShape(_Shape, frozen=True, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(_Shape, frozen=True, kw_only=True):
    name: str = ""
    cluster: ClusterShape = ClusterShape()


class NamedUser(_Shape, frozen=True, kw_only=True):
    name: str = ""
    user: UserShape = UserShape()


class NamedContext(_Shape, frozen=True, kw_only=True):
    name: str = ""
    context: ContextShape = ContextShape()


class KubeconfigShape(_Shape, frozen=True, kw_only=True):
    clusters: list[NamedCluster] = []
    users: list[NamedUser] = []
    contexts: list[NamedContext] = []
    current_context: str = ""


SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Raw = Mapping[str, Any]


class KubeconfigError(InvalidInput):
    """A kubeconfig cannot be used: names the file or the entry, and what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything needed to talk to one API server as one identity."""

    server: str
    trust: ServerTrust
    credentials: Credentials
    namespace: str = "default"
    tls_server_name: str = ""
    proxy: str = ""
    context: str = ""
    explain: str = ""
    """Where a kubetide that runs beside this cluster explains itself, as the file announces it."""


EXPLAIN_EXTENSION = "kubetide.io/explain"
"""Extension of a cluster entry of a kubeconfig: `{address: 127.0.0.1:9316}`, written by `kubetide up` and `demo`."""


@dataclass(slots=True)
class _Merged:
    clusters: dict[str, tuple[Raw, Path]] = field(default_factory=dict)
    users: dict[str, tuple[Raw, Path]] = field(default_factory=dict)
    contexts: dict[str, tuple[Raw, Path]] = field(default_factory=dict)
    current: str = ""


def load(
    *,
    clock: Clock,
    path: Path | None = None,
    context: str = "",
    environment: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> Access:
    """Return the access that `path`, else KUBECONFIG, else ~/.kube/config, else the pod's service account gives."""
    env = os.environ if environment is None else environment
    files = _files(path, env, home)
    if files:
        return from_files(files, context=context, clock=clock)
    if "KUBERNETES_SERVICE_HOST" in env:
        return in_cluster(environment=env)
    default = (home or Path.home()) / ".kube" / "config"
    raise KubeconfigError("no cluster: give --kubeconfig, set KUBECONFIG, or run inside a pod", subject=str(default))


def context_names(
    *, path: Path | None = None, environment: Mapping[str, str] | None = None, home: Path | None = None
) -> list[str]:
    """Return the contexts of the files that `load` would read."""
    merged = _Merged()
    for each in _files(path, os.environ if environment is None else environment, home):
        _merge(merged, each)
    return sorted(merged.contexts)


def _files(path: Path | None, env: Mapping[str, str], home: Path | None) -> list[Path]:
    if path is not None:
        return [path]
    listed = [Path(each) for each in env.get("KUBECONFIG", "").split(os.pathsep) if each]
    if listed:
        return [each for each in listed if each.exists()] or listed
    default = (home or Path.home()) / ".kube" / "config"
    return [default] if default.exists() else []


def in_cluster(*, environment: Mapping[str, str] | None = None, folder: Path = SERVICE_ACCOUNT) -> Access:
    """Return the access of the service account of the pod this runs in."""
    env = os.environ if environment is None else environment
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise KubeconfigError("KUBERNETES_SERVICE_HOST is not set: not inside a pod")
    namespace = folder / "namespace"
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        trust=ServerTrust(ca=Pem(path=folder / "ca.crt")),
        credentials=TokenFile(folder / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        context="in-cluster",
    )


def from_files(paths: list[Path], *, clock: Clock, context: str = "") -> Access:
    """Return the access that a context of these files describes."""
    merged = _Merged()
    for path in paths:
        _merge(merged, path)
    name = context or merged.current
    if not name:
        raise KubeconfigError("no context is current; choose one with --context", subject=str(paths[0]))
    chosen, _ = _entry(merged.contexts, name, "context")
    cluster, cluster_file = _entry(merged.clusters, chosen.get("cluster") or "", f"cluster of context {name}")
    user_name = chosen.get("user") or ""
    user, user_file = _entry(merged.users, user_name, f"user of context {name}") if user_name else ({}, cluster_file)
    server = cluster.get("server") or ""
    if not server.startswith(("http://", "https://")):
        raise KubeconfigError(f"{server!r} is no http(s) address", subject=str(cluster_file), field="server")
    return Access(
        server=server.rstrip("/"),
        trust=ServerTrust(
            ca=_pem(cluster, "certificate-authority", cluster_file),
            insecure=bool(cluster.get("insecure-skip-tls-verify")),
        ),
        credentials=_credentials(user, user_file, cluster, clock),
        namespace=chosen.get("namespace") or "default",
        tls_server_name=cluster.get("tls-server-name") or "",
        proxy=cluster.get("proxy-url") or "",
        context=name,
        explain=_announced(cluster),
    )


def _announced(cluster: Raw) -> str:
    """Return the address in the extension of a cluster entry; what is malformed there concerns nobody else."""
    for entry in cluster.get("extensions") or ():
        if isinstance(entry, dict) and entry.get("name") == EXPLAIN_EXTENSION:
            extension = entry.get("extension")
            address = extension.get("address") if isinstance(extension, dict) else None
            return address if isinstance(address, str) else ""
    return ""


def _merge(merged: _Merged, path: Path) -> None:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"cannot be read: {error.strerror}", subject=str(path)) from error
    try:
        raw = without_nulls(parse_yaml(data, what=str(path)))
        if not isinstance(raw, dict):
            raise KubeconfigError("is no kubeconfig", subject=str(path))
        convert(raw, KubeconfigShape, what=str(path))
    except DecodeError as error:
        raise KubeconfigError(error.message, subject=error.subject, field=error.field) from error
    for section, inner, into in (
        ("clusters", "cluster", merged.clusters),
        ("users", "user", merged.users),
        ("contexts", "context", merged.contexts),
    ):
        for entry in raw.get(section) or ():
            into.setdefault(entry.get("name") or "", (entry.get(inner) or {}, path))
    merged.current = merged.current or raw.get("current-context") or ""


def _entry(entries: Mapping[str, tuple[Raw, Path]], name: str, what: str) -> tuple[Raw, Path]:
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise KubeconfigError(f"there is no {what} {name!r}; there are: {known}")
    return entries[name]


def _pem(entry: Raw, name: str, file: Path) -> Pem:
    """Return what `name` or `name-data` holds; the data wins, as in kubectl."""
    data = entry.get(f"{name}-data")
    if data:
        try:
            return Pem(data=base64.b64decode(data, validate=True).decode())
        except ValueError as error:
            raise KubeconfigError("is no base64 text", subject=str(file), field=f"{name}-data") from error
    path = entry.get(name)
    return Pem(path=file.parent / path) if path else Pem()


def _credentials(user: Raw, file: Path, cluster: Raw, clock: Clock) -> Credentials:
    plain = _plain_credentials(user, file, cluster, clock)
    headers = _impersonation(user)
    return WithHeaders(plain, headers) if headers else plain


def _plain_credentials(user: Raw, file: Path, cluster: Raw, clock: Clock) -> Credentials:
    certificate_pem = _pem(user, "client-certificate", file)
    key = _pem(user, "client-key", file)
    if bool(certificate_pem) != bool(key):
        raise KubeconfigError("needs both client-certificate and client-key", subject=str(file), field="user")
    certificate = Certificate(certificate=certificate_pem, key=key) if certificate_pem else None
    if user.get("exec"):
        return ExecPlugin(_exec(user["exec"], file, cluster), clock=clock, certificate=certificate)
    if user.get("tokenFile"):
        return TokenFile(file.parent / user["tokenFile"], certificate=certificate)
    if user.get("token"):
        return Static(bearer(user["token"]), certificate)
    if user.get("username"):
        return Static(basic(user["username"], user.get("password") or ""), certificate)
    if user.get("auth-provider"):
        provider = user["auth-provider"].get("name")
        raise KubeconfigError(
            f"the auth provider {provider!r} is gone from Kubernetes: use its exec plugin", subject=str(file)
        )
    return Static((), certificate)


def _exec(raw: Raw, file: Path, cluster: Raw) -> ExecConfig:
    version = raw.get("apiVersion") or ""
    if version not in EXEC_VERSIONS:
        raise KubeconfigError(f"{version!r} is not one of {EXEC_VERSIONS}", subject=str(file), field="exec.apiVersion")
    command = raw.get("command") or ""
    if not command:
        raise KubeconfigError("is missing", subject=str(file), field="exec.command")
    if raw.get("interactiveMode") == "Always":
        raise KubeconfigError(
            "wants a terminal (interactiveMode: Always), and a controller has none", subject=str(file), field="exec"
        )
    return ExecConfig(
        # A command with a slash is relative to the kubeconfig; a bare name is looked up in PATH.
        command=str(file.parent / command) if "/" in command else command,
        args=tuple(raw.get("args") or ()),
        env={each.get("name", ""): each.get("value", "") for each in raw.get("env") or ()},
        api_version=version,
        install_hint=raw.get("installHint") or "",
        interactive_mode=raw.get("interactiveMode") or "Never",
        cluster=_cluster_info(cluster) if raw.get("provideClusterInfo") else None,
    )


def _cluster_info(cluster: Raw) -> Raw:
    info = {key: cluster[key] for key in ("server", "tls-server-name", "proxy-url") if cluster.get(key)}
    if cluster.get("insecure-skip-tls-verify"):
        info["insecure-skip-tls-verify"] = True
    if cluster.get("certificate-authority-data"):
        info["certificate-authority-data"] = cluster["certificate-authority-data"]
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            info["config"] = extension.get("extension")
    return cast(Raw, info)


def _impersonation(user: Raw) -> Headers:
    headers: list[tuple[str, str]] = []
    if user.get("as"):
        headers.append(("Impersonate-User", user["as"]))
    if user.get("as-uid"):
        headers.append(("Impersonate-Uid", user["as-uid"]))
    headers += [("Impersonate-Group", group) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    return tuple(headers)
