"""Who a request is from, as the API server in front of it vouches for it.

The aggregation layer passes requests on with a client certificate of its own and the caller in headers. Which CA signs
that certificate, which names it may have and what the headers are called is published in the ConfigMap
`extension-apiserver-authentication`. Headers without that certificate prove nothing and are passed over.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from kubetide.errors import InvalidInput

CONFIG_NAMESPACE, CONFIG_NAME = "kube-system", "extension-apiserver-authentication"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who asks."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def key(self) -> tuple[object, ...]:
        """Return what makes two users the same to an authorizer."""
        return self.name, self.groups, self.uid, tuple(sorted(self.extra.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedProxies:
    """What the ConfigMap says. Without a CA nobody is trusted to speak for others."""

    client_ca: str = ""
    proxy_ca: str = ""
    allowed_names: tuple[str, ...] = ()
    """Common names that the proxy's certificate may have; empty: any."""
    user_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    def trusted(self) -> str:
        """Return all CAs whose certificates are looked at."""
        return "\n".join(ca.strip() for ca in (self.proxy_ca, self.client_ca) if ca.strip())


def read_proxies(data: Mapping[str, str] | None) -> TrustedProxies:
    """Read the ConfigMap's data; raises InvalidInput that names the key."""
    known = data or {}
    return TrustedProxies(
        client_ca=known.get("client-ca-file", ""),
        proxy_ca=known.get("requestheader-client-ca-file", ""),
        allowed_names=_names(known, "requestheader-allowed-names"),
        user_headers=_names(known, "requestheader-username-headers"),
        group_headers=_names(known, "requestheader-group-headers"),
        uid_headers=_names(known, "requestheader-uid-headers"),
        extra_prefixes=_names(known, "requestheader-extra-headers-prefix"),
    )


def vouched_user(proxies: TrustedProxies, headers: list[tuple[str, str]]) -> User | None:
    """Return the user that a trusted proxy's headers name; None if they name none."""
    name = _first(headers, proxies.user_headers)
    if not name:
        return None
    extra: dict[str, tuple[str, ...]] = {}
    for prefix in (each.lower() for each in proxies.extra_prefixes):
        for header, value in headers:
            if header.lower().startswith(prefix) and len(header) > len(prefix):
                key = unquote(header[len(prefix) :].lower())
                extra[key] = (*extra.get(key, ()), value)
    groups = {each.lower() for each in proxies.group_headers}
    return User(
        name=name,
        groups=tuple(value for header, value in headers if header.lower() in groups),
        uid=_first(headers, proxies.uid_headers),
        extra=extra,
    )


def _first(headers: list[tuple[str, str]], names: tuple[str, ...]) -> str:
    for name in names:
        for header, value in headers:
            if header.lower() == name.lower() and value.strip():
                return value.strip()
    return ""


def _names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    text = data.get(key, "")
    if not text.strip():
        return ()
    try:
        names = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"is not JSON: {error}", subject=f"configmap {CONFIG_NAME}", field=key) from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidInput("is not a list of texts", subject=f"configmap {CONFIG_NAME}", field=key)
    return tuple(names)


def bound_node(user: User, node_of_pod: Callable[[str, str, str], str]) -> str:
    """Return the node that a service account's token is bound to: by its own claim, or by the pod it was made for.

    `node_of_pod(namespace, name, uid)` gives the node of a pod; API servers before 1.30 name the pod alone.
    """
    claimed = user.extra.get(_NODE_CLAIM, ())
    if claimed:
        return claimed[0] if len(claimed) == 1 else ""
    parts = user.name.split(":")
    pods, uids = user.extra.get(_POD_CLAIM, ()), user.extra.get(_POD_UID_CLAIM, ())
    if parts[:2] != ["system", "serviceaccount"] or len(parts) != 4 or len(pods) != 1 or len(uids) != 1:
        return ""
    return node_of_pod(parts[2], pods[0], uids[0])


_NODE_CLAIM = "authentication.kubernetes.io/node-name"
_POD_CLAIM = "authentication.kubernetes.io/pod-name"
_POD_UID_CLAIM = "authentication.kubernetes.io/pod-uid"
