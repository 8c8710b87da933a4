"""RBAC: may this user do that? Evaluated from the roles and bindings in the store.

Members of `system:masters` may do everything. Everybody else needs a rule: of a ClusterRole bound in the cluster, or
of a Role or ClusterRole bound in the namespace of the request.
"""

from collections.abc import Iterator

import msgspec

from kubetide.api.values.selectors import parse_field_selector
from kubetide.embedded.apiserver.rest.requests import Request, RequestTarget, User
from kubetide.embedded.apiserver.rest.status import Raw, StatusError, qualified
from kubetide.embedded.apiserver.storage.objects import ObjectStore, ResourceKey, StoreKey
from kubetide.errors import SelectorError

GROUP = "rbac.authorization.k8s.io"
ROLES = ResourceKey(GROUP, "roles")
CLUSTER_ROLES = ResourceKey(GROUP, "clusterroles")
BINDINGS = ResourceKey(GROUP, "rolebindings")
CLUSTER_BINDINGS = ResourceKey(GROUP, "clusterrolebindings")

_SERVICE_ACCOUNT = "system:serviceaccount:"


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to do."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    """The path, for requests that are not about a resource."""

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def attributes_of(request: Request, target: RequestTarget | None) -> Attributes:
    """Return what a request wants to do."""
    if target is None or not target.plural:
        return Attributes(verb=request.method.lower(), path=request.path)
    return Attributes(
        verb=verb_of(request, target),
        group=target.group,
        resource=target.plural,
        subresource=target.subresource,
        namespace=target.namespace,
        name=target.name or _selected_name(request),
    )


def _selected_name(request: Request) -> str:
    """Return the one name that a field selector leaves: a rule for that name allows to list and watch it."""
    try:
        terms = parse_field_selector(request.query.get("fieldSelector", ""))
    except SelectorError:
        return ""
    return next((value for path, equal, value in terms if path == "metadata.name" and equal), "")


def verb_of(request: Request, target: RequestTarget) -> str:
    """Return the API verb of a request."""
    match request.method:
        case "GET" | "HEAD":
            if request.flag("watch"):
                return "watch"
            return "get" if target.name else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "PATCH":
            return "patch"
        case "DELETE":
            return "delete" if target.name else "deletecollection"
    return request.method.lower()


class Authorizer:
    """Evaluates rules."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def check_request(self, request: Request, target: RequestTarget | None) -> None:
        """Refuse a request that no rule allows; what it wants to do is found out only if somebody has to ask."""
        if not request.user.is_master:
            self.check(request.user, attributes_of(request, target))

    def check(self, user: User, wanted: Attributes) -> None:
        """Refuse what no rule allows."""
        if not self.allows(user, wanted):
            raise access_denied(user, wanted)

    def allows(self, user: User, wanted: Attributes) -> bool:
        """Whether a rule allows it."""
        if user.is_master:
            return True
        return any(_permits(rule, wanted) for rule in self.rules_for(user, wanted.namespace))

    def rules_for(self, user: User, namespace: str) -> Iterator[Raw]:
        """Yield the rules that hold for a user in a namespace, and cluster-wide."""
        for entry in self._store.collection(CLUSTER_BINDINGS).entries():
            if _is_subject(entry.obj, user, ""):
                yield from self._rules(entry.obj, "")
        if namespace:
            for entry in self._store.collection(BINDINGS).entries(namespace):
                if _is_subject(entry.obj, user, namespace):
                    yield from self._rules(entry.obj, namespace)

    def _rules(self, binding: Raw, namespace: str) -> list[Raw]:
        return self.rules_of(binding.get("roleRef") or {}, namespace) or []

    def rules_of(self, reference: Raw, namespace: str) -> list[Raw] | None:
        """Return the rules of the role that a binding in a namespace refers to, or None if there is no such role."""
        name = str(reference.get("name"))
        if reference.get("kind") == "Role":
            entry = self._store.get(ROLES, StoreKey(namespace, name)) if namespace else None
        else:
            entry = self._store.get(CLUSTER_ROLES, StoreKey("", name))
        return list(entry.obj.get("rules") or ()) if entry is not None else None


def _is_subject(binding: Raw, user: User, namespace: str) -> bool:
    for subject in binding.get("subjects") or ():
        match subject.get("kind"):
            case "User" if subject.get("name") == user.name:
                return True
            case "Group" if subject.get("name") in user.groups:
                return True
            case "ServiceAccount":
                owner = subject.get("namespace") or namespace
                if user.name == f"{_SERVICE_ACCOUNT}{owner}:{subject.get('name')}":
                    return True
    return False


def _permits(rule: Raw, wanted: Attributes) -> bool:
    verbs = rule.get("verbs") or ()
    if "*" not in verbs and wanted.verb not in verbs:
        return False
    if wanted.path:
        return any(_path_matches(pattern, wanted.path) for pattern in rule.get("nonResourceURLs") or ())
    groups = rule.get("apiGroups") or ()
    if "*" not in groups and wanted.group not in groups:
        return False
    resources = rule.get("resources") or ()
    full = wanted.full_resource
    if not ("*" in resources or full in resources or (f"*/{wanted.subresource}" in resources and wanted.subresource)):
        return False
    names = rule.get("resourceNames") or ()
    return not names or wanted.name in names


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern[:-1]))


def access_denied(user: User, wanted: Attributes) -> StatusError:
    """Return the 403 that says who may not do what, where."""
    if wanted.path:
        text = f'forbidden: User "{user.name}" cannot {wanted.verb} path "{wanted.path}"'
        return StatusError(403, "Forbidden", text)
    where = f' in the namespace "{wanted.namespace}"' if wanted.namespace else " at the cluster scope"
    what = qualified(wanted.group, wanted.resource)
    named = f'{what} "{wanted.name}"' if wanted.name else what
    text = (
        f'{named} is forbidden: User "{user.name}" cannot {wanted.verb} resource "{wanted.full_resource}" '
        f'in API group "{wanted.group}"{where}'
    )
    return StatusError(403, "Forbidden", text, group=wanted.group, resource=wanted.resource, name=wanted.name)


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """Return the user that a service account acts as."""
    groups = ("system:serviceaccounts", f"{_SERVICE_ACCOUNT[:-1]}s:{namespace}", "system:authenticated")
    return User(f"{_SERVICE_ACCOUNT}{namespace}:{name}", groups, uid)


def bootstrap_objects() -> list[Raw]:
    """Return the roles and bindings that every cluster has."""
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    paths = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/readyz",
        "/openapi",
        "/openapi/*",
        "/version",
    ]
    reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
    read = ["get", "list", "watch"]
    workloads = [
        {"apiGroups": ["", "apps", "batch", "autoscaling", "policy"], "resources": ["*"], "verbs": read},
    ]
    write = [
        {"apiGroups": ["", "apps", "batch", "autoscaling", "policy"], "resources": ["*"], "verbs": ["*"]},
    ]
    return [
        _role("cluster-admin", [everything, {"nonResourceURLs": ["*"], "verbs": ["*"]}]),
        _role("admin", write),
        _role("edit", write),
        _role("view", workloads),
        _role("system:discovery", [{"nonResourceURLs": [*paths, "/version/"], "verbs": ["get"]}]),
        _role(
            "system:basic-user",
            [
                {"apiGroups": ["authorization.k8s.io"], "resources": reviews, "verbs": ["create"]},
                {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
            ],
        ),
        _binding("cluster-admin", "cluster-admin", "system:masters"),
        _binding("system:discovery", "system:discovery", "system:authenticated"),
        _binding("system:basic-user", "system:basic-user", "system:authenticated"),
    ]


def _role(name: str, rules: list[Raw]) -> Raw:
    return {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}


def _binding(name: str, role: str, group: str) -> Raw:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "apiGroup": GROUP, "name": group}],
    }
