"""Who writes roles and bindings cannot grant more than they have, unless `escalate` or `bind` says so."""

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.escalation import not_covered
from kubetide.embedded.apiserver.auth.rbac import Attributes, Authorizer
from kubetide.embedded.apiserver.rest.requests import ADMIN, Answer, Request, User
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.objects import ObjectStore

Raw = dict[str, Any]
GROUP = "rbac.authorization.k8s.io"
CLUSTER = f"/apis/{GROUP}/v1"
SHOP = f"{CLUSTER}/namespaces/shop"
ANN = User("ann", ("system:authenticated",))
MANAGE: Raw = {
    "apiGroups": [GROUP],
    "resources": ["roles", "clusterroles", "rolebindings", "clusterrolebindings"],
    "verbs": ["create", "update", "patch", "get"],
}
EVERYTHING: Raw = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
ALL_PATHS: Raw = {"nonResourceURLs": ["*"], "verbs": ["*"]}


def rule(resources: str, verbs: str = "get", groups: str = "", **more: Any) -> Raw:
    return {"apiGroups": groups.split(","), "resources": resources.split(","), "verbs": verbs.split(","), **more}


def role(*rules: Raw, name: str = "made", **more: Any) -> Raw:
    return {"metadata": {"name": name}, "rules": list(rules), **more}


def binding(kind: str, name: str, *, to: str = "ann") -> Raw:
    return {
        "metadata": {"name": "made"},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
        "subjects": [{"kind": "User", "apiGroup": GROUP, "name": to}],
    }


class Cluster:
    """A cluster in which ann may manage roles and bindings, and has some more rules."""

    def __init__(self, *held: Raw, namespaced: bool = False) -> None:
        self.api = ApiServer(clock=SystemClock())
        self.api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        self._grant("manage", [MANAGE], {})
        self._grant("held", list(held), {"namespace": "shop"} if namespaced else {})

    def _grant(self, name: str, rules: list[Raw], at: Raw) -> None:
        prefix = "" if at else "Cluster"
        self.insert({"kind": f"{prefix}Role", "metadata": {"name": name, **at}, "rules": rules})
        bound = binding(f"{prefix}Role", name)
        self.insert({**bound, "kind": f"{prefix}RoleBinding", "metadata": {"name": name, **at}})

    def insert(self, obj: Raw) -> None:
        self.api.insert({"apiVersion": f"{GROUP}/v1", **obj})

    async def ask(
        self, method: str, path: str, body: Any, *, user: User = ANN, content_type: str = "application/json"
    ) -> tuple[int, Raw]:
        query = {"fieldManager": "test"} | ({"force": "true"} if "apply" in content_type else {})
        request = Request(method, path, query, json.dumps(body).encode(), content_type, user=user)
        answer = await self.api.handle(request)
        assert isinstance(answer, Answer)
        return answer.status, json.loads(answer.body)


@pytest.mark.parametrize("path", [f"{SHOP}/roles", f"{CLUSTER}/clusterroles"])
async def test_a_role_takes_the_permissions_in_it(path: str) -> None:
    cluster = Cluster(rule("pods", "get,list"))
    assert (await cluster.ask("POST", path, role(rule("pods"), name="less")))[0] == 201
    status, told = await cluster.ask("POST", path, role(rule("pods", "get,delete"), name="more"))
    assert (status, told["reason"]) == (403, "Forbidden")
    assert told["message"].endswith(
        'is forbidden: user "ann" is attempting to grant RBAC permissions not currently held: delete pods'
    )
    assert (await cluster.ask("POST", path, role(EVERYTHING, name="all")))[0] == 403
    assert (await cluster.ask("POST", path, role(EVERYTHING, name="all"), user=ADMIN))[0] == 201


async def test_rules_of_a_namespace_count_in_it_only() -> None:
    cluster = Cluster(rule("pods"), namespaced=True)
    assert (await cluster.ask("POST", f"{SHOP}/roles", role(rule("pods"))))[0] == 201
    assert (await cluster.ask("POST", f"{CLUSTER}/namespaces/default/roles", role(rule("pods"))))[0] == 403
    assert (await cluster.ask("POST", f"{CLUSTER}/clusterroles", role(rule("pods"))))[0] == 403


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        ("application/merge-patch+json", {"rules": [EVERYTHING]}),
        ("application/strategic-merge-patch+json", {"rules": [EVERYTHING]}),
        ("application/json-patch+json", [{"op": "add", "path": "/rules/-", "value": EVERYTHING}]),
        (
            "application/apply-patch+yaml",
            {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": "manage"}, "rules": [EVERYTHING]},
        ),
    ],
    ids=["merge", "strategic", "json", "apply"],
)
async def test_nobody_widens_their_own_role_by_a_patch(content_type: str, patch: Any) -> None:
    cluster = Cluster()
    path = f"{CLUSTER}/clusterroles/manage"
    assert (await cluster.ask("PATCH", path, patch, content_type=content_type))[0] == 403
    assert not cluster.api.authorizer.allows(ANN, Attributes(verb="delete", resource="pods"))


async def test_nobody_widens_their_own_role_by_an_update() -> None:
    cluster = Cluster()
    status, _ = await cluster.ask("PUT", f"{CLUSTER}/clusterroles/manage", role(MANAGE, EVERYTHING, name="manage"))
    assert status == 403


async def test_a_dry_run_is_refused_too() -> None:
    request = Request("POST", f"{SHOP}/roles", {"dryRun": "All"}, json.dumps(role(EVERYTHING)).encode(), user=ANN)
    answer = await Cluster().api.handle(request)
    assert isinstance(answer, Answer)
    assert answer.status == 403


async def test_the_verb_escalate_lets_one_grant_more() -> None:
    named = rule("roles", "escalate", GROUP, resourceNames=["trusted"])
    cluster = Cluster(named)
    assert (await cluster.ask("POST", f"{SHOP}/roles", role(EVERYTHING, name="trusted")))[0] == 201
    assert (await cluster.ask("POST", f"{SHOP}/roles", role(EVERYTHING, name="other")))[0] == 403
    assert (await cluster.ask("POST", f"{CLUSTER}/clusterroles", role(EVERYTHING, name="trusted")))[0] == 403


@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
async def test_a_binding_takes_the_permissions_of_its_role(kind: str) -> None:
    cluster = Cluster(rule("pods"))
    at = {"namespace": "shop"} if kind == "Role" else {}
    cluster.insert({"kind": kind, **role(EVERYTHING), "metadata": {"name": "all", **at}})
    cluster.insert({"kind": kind, **role(rule("pods")), "metadata": {"name": "less", **at}})
    status, told = await cluster.ask("POST", f"{SHOP}/rolebindings", binding(kind, "all"))
    assert (status, told["reason"]) == (403, "Forbidden")
    assert (await cluster.ask("POST", f"{SHOP}/rolebindings", binding(kind, "less")))[0] == 201


async def test_nobody_becomes_administrator_by_a_cluster_role_binding() -> None:
    cluster = Cluster()
    path = f"{CLUSTER}/clusterrolebindings"
    assert (await cluster.ask("POST", path, binding("ClusterRole", "cluster-admin")))[0] == 403
    assert (await cluster.ask("POST", path, binding("ClusterRole", "missing")))[0] == 404
    assert (await cluster.ask("POST", path, binding("ClusterRole", "cluster-admin"), user=ADMIN))[0] == 201
    status, _ = await Cluster(EVERYTHING, ALL_PATHS).ask("POST", path, binding("ClusterRole", "cluster-admin"))
    assert status == 201


async def test_nobody_adds_themselves_to_a_binding() -> None:
    cluster = Cluster()
    cluster.insert({**binding("ClusterRole", "cluster-admin", to="root"), "kind": "ClusterRoleBinding"})
    patch = {"subjects": [{"kind": "User", "apiGroup": GROUP, "name": "ann"}]}
    path = f"{CLUSTER}/clusterrolebindings/made"
    assert (await cluster.ask("PATCH", path, patch, content_type="application/merge-patch+json"))[0] == 403


async def test_the_verb_bind_lets_one_bind_a_role() -> None:
    cluster = Cluster(rule("clusterroles", "bind", GROUP, resourceNames=["view"]))
    assert (await cluster.ask("POST", f"{SHOP}/rolebindings", binding("ClusterRole", "view")))[0] == 201
    assert (await cluster.ask("POST", f"{SHOP}/rolebindings", binding("ClusterRole", "cluster-admin")))[0] == 403
    assert (await cluster.ask("POST", f"{CLUSTER}/clusterrolebindings", binding("ClusterRole", "view")))[0] == 201


async def test_aggregation_takes_full_authority() -> None:
    path = f"{CLUSTER}/clusterroles"
    rule_of = {"clusterRoleSelectors": [{"matchLabels": {"aggregate": "yes"}}]}
    body = role(aggregationRule=rule_of)
    assert (await Cluster(rule("*", "get,list,create", "*")).ask("POST", path, body))[0] == 403
    assert (await Cluster(EVERYTHING, ALL_PATHS).ask("POST", path, body))[0] == 201
    cluster = Cluster(rule("pods"))
    cluster.insert({"kind": "ClusterRole", **body})
    assert (await cluster.ask("PUT", f"{path}/made", role(rule("pods"))))[0] == 403


async def test_whoever_touches_only_finalizers_and_owners_grants_nothing() -> None:
    cluster = Cluster()
    cluster.insert({"kind": "ClusterRole", **role(EVERYTHING, name="all")})
    merge = "application/merge-patch+json"
    path = f"{CLUSTER}/clusterroles/all"
    finalizers = {"metadata": {"finalizers": ["example.com/f"]}}
    assert (await cluster.ask("PATCH", path, finalizers, content_type=merge))[0] == 200
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert (await cluster.ask("PATCH", path, labels, content_type=merge))[0] == 403


@pytest.mark.parametrize(
    ("granted", "held", "missing"),
    [
        pytest.param([rule("pods")], [], ["get pods"], id="nothing-held"),
        pytest.param([rule("pods")], [rule("pods")], [], id="the-same"),
        pytest.param([rule("pods,nodes")], [rule("pods"), rule("nodes")], [], id="by-two-rules"),
        pytest.param(
            [rule("pods", "get,list")], [rule("pods"), rule("nodes", "list")], ["list pods"], id="not-crossed"
        ),
        pytest.param([rule("pods")], [rule("*", "*", "*")], [], id="covered-by-stars"),
        pytest.param([rule("*")], [rule("pods,nodes")], ["get *"], id="a-star-needs-a-star"),
        pytest.param([rule("pods", "*")], [rule("pods", "get,list,watch")], ["* pods"], id="all-verbs"),
        pytest.param([rule("x", groups="*")], [rule("x", groups="apps")], ["get x.*"], id="all-groups"),
        pytest.param([rule("pods/scale")], [rule("*/scale")], [], id="any-scale"),
        pytest.param([rule("*/scale")], [rule("pods/scale")], ["get */scale"], id="every-scale"),
        pytest.param([rule("pods/log")], [rule("pods")], ["get pods/log"], id="a-subresource"),
        pytest.param([rule("pods", resourceNames=["a"])], [rule("pods")], [], id="a-name"),
        pytest.param([rule("pods")], [rule("pods", resourceNames=["a"])], ["get pods"], id="more-than-a-name"),
        pytest.param(
            [rule("pods", resourceNames=["a", "b"])], [rule("pods", resourceNames=["a"])], ["get pods/b"], id="names"
        ),
        pytest.param([{"nonResourceURLs": ["/a/b"], "verbs": ["get"]}], [ALL_PATHS], [], id="any-path"),
        pytest.param(
            [{"nonResourceURLs": ["/a/b", "/a/*", "/c"], "verbs": ["get"]}],
            [{"nonResourceURLs": ["/a/*"], "verbs": ["get"]}],
            ["get /c"],
            id="path-prefix",
        ),
        pytest.param(
            [ALL_PATHS], [{"nonResourceURLs": ["/*"], "verbs": ["*"]}, EVERYTHING], ["* *"], id="resources-are-no-paths"
        ),
        pytest.param([{"verbs": ["*"]}, rule("pods", resourceNames=[])], [rule("pods")], [], id="grants-nothing"),
    ],
)
def test_a_permission_is_held_if_one_rule_covers_it(granted: list[Raw], held: list[Raw], missing: list[str]) -> None:
    assert list(not_covered(granted, held)) == missing


WORDS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3)
RULES = st.builds(
    lambda verbs, groups, resources, names: {
        "verbs": verbs,
        "apiGroups": groups,
        "resources": resources,
        "resourceNames": names,
    },
    WORDS,
    WORDS,
    WORDS,
    st.lists(st.sampled_from("xy"), max_size=2),
)


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=4))
def test_what_is_covered_allows_nothing_that_was_not_allowed_before(granted: list[Raw], held: list[Raw]) -> None:
    def allowed(rules: list[Raw], wanted: Attributes) -> bool:
        authorizer = Authorizer(ObjectStore())
        authorizer.rules_for = lambda user, namespace: iter(rules)  # type: ignore[method-assign]
        return authorizer.allows(ANN, wanted)

    every = [
        Attributes(verb=verb, group=group, resource=resource, name=name)
        for verb, group, resource, name in product("abc", "abc", "abc", ("x", "y", "z", ""))
    ]
    gained = [wanted for wanted in every if allowed(granted, wanted) and not allowed(held, wanted)]
    assert bool(gained) == bool(list(not_covered(granted, held)))


def test_a_role_of_millions_of_permissions_is_judged_at_once() -> None:
    many = [f"r{number}" for number in range(2000)]
    big = {"verbs": many, "apiGroups": many, "resources": many, "resourceNames": many}
    assert list(not_covered([big], [big])) == []
    assert len(list(not_covered([big], [{**big, "resources": many[1:]}]))) == 1
