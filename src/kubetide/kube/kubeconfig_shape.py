"""The shape of a kubeconfig: what kubetide reads of it must have the type that kubectl expects, or it is refused."""

from typing import Any

import msgspec


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
