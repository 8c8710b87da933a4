"""RBAC rules, service-account tokens, and the objects that answer questions about both."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.rbac import Attributes, service_account
from kubetide.embedded.apiserver.rest.requests import ADMIN, Request, User, parse_target
from kubetide.embedded.apiserver.rest.status import StatusError
from kubetide.embedded.apiserver.server import ApiServer

Raw = dict[str, Any]
ROBOT = service_account("shop", "robot")
RBAC = "rbac.authorization.k8s.io/v1"


def cluster(
    *rules: Raw, kind: str = "ClusterRole", bound: str = "ClusterRoleBinding", subject: Raw | None = None
) -> ApiServer:
    api = ApiServer(clock=SystemClock())
    api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    namespace = {} if kind == "ClusterRole" else {"namespace": "shop"}
    api.insert({"apiVersion": RBAC, "kind": kind, "metadata": {"name": "test", **namespace}, "rules": list(rules)})
    where = {} if bound == "ClusterRoleBinding" else {"namespace": "shop"}
    api.insert(
        {
            "apiVersion": RBAC,
            "kind": bound,
            "metadata": {"name": "test", **where},
            "roleRef": {"kind": kind, "name": "test"},
            "subjects": [subject or {"kind": "ServiceAccount", "name": "robot", "namespace": "shop"}],
        }
    )
    return api


def wants(verb: str, resource: str = "pods", **more: str) -> Attributes:
    plural, _, sub = resource.partition("/")
    return Attributes(verb=verb, resource=plural, subresource=sub, **more)


GET_PODS: Raw = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}


@pytest.mark.parametrize(
    ("rule", "asked", "allowed"),
    [
        pytest.param(GET_PODS, wants("get"), True, id="exact"),
        pytest.param(GET_PODS, wants("list"), False, id="another-verb"),
        pytest.param(GET_PODS, wants("get", "nodes"), False, id="another-resource"),
        pytest.param(GET_PODS, wants("get", "pods/status"), False, id="subresources-are-named-apart"),
        pytest.param({**GET_PODS, "resources": ["pods/status"]}, wants("get", "pods/status"), True, id="subresource"),
        pytest.param({**GET_PODS, "resources": ["*/scale"]}, wants("get", "pods/scale"), True, id="any-scale"),
        pytest.param({**GET_PODS, "resources": ["*"], "verbs": ["*"]}, wants("delete", "pods/x"), True, id="stars"),
        pytest.param({**GET_PODS, "apiGroups": ["apps"]}, wants("get"), False, id="another-group"),
        pytest.param({**GET_PODS, "resourceNames": ["a"]}, wants("get", name="a"), True, id="named"),
        pytest.param({**GET_PODS, "resourceNames": ["a"]}, wants("get", name="b"), False, id="named-otherwise"),
        pytest.param(
            {"nonResourceURLs": ["/metrics*"], "verbs": ["get"]},
            Attributes(verb="get", path="/metrics/x"),
            True,
            id="path",
        ),
    ],
)
def test_a_rule_allows_what_it_names(rule: Raw, asked: Attributes, allowed: bool) -> None:
    assert cluster(rule).authorizer.allows(ROBOT, asked) is allowed


def test_a_role_holds_in_its_namespace_only() -> None:
    api = cluster(GET_PODS, kind="Role", bound="RoleBinding")
    assert api.authorizer.allows(ROBOT, wants("get", namespace="shop"))
    assert not api.authorizer.allows(ROBOT, wants("get", namespace="default"))
    assert not api.authorizer.allows(ROBOT, wants("get"))


def test_a_cluster_role_bound_in_a_namespace_holds_there() -> None:
    api = cluster(GET_PODS, bound="RoleBinding")
    assert api.authorizer.allows(ROBOT, wants("get", namespace="shop"))
    assert not api.authorizer.allows(ROBOT, wants("get", namespace="default"))


@pytest.mark.parametrize(
    ("subject", "user"),
    [
        ({"kind": "User", "name": "ann"}, User("ann")),
        ({"kind": "Group", "name": "ops"}, User("bob", ("ops",))),
        ({"kind": "Group", "name": "system:serviceaccounts:shop"}, ROBOT),
    ],
)
def test_subjects_may_be_users_groups_and_accounts(subject: Raw, user: User) -> None:
    api = cluster(GET_PODS, subject=subject)
    assert api.authorizer.allows(user, wants("get"))
    assert not api.authorizer.allows(User("stranger"), wants("get"))


def test_a_403_names_who_may_not_do_what_where() -> None:
    with pytest.raises(StatusError) as refused:
        cluster().authorizer.check(ROBOT, wants("list", namespace="shop"))
    assert refused.value.code == 403
    assert refused.value.message == (
        'pods is forbidden: User "system:serviceaccount:shop:robot" cannot list resource "pods" in API group "" '
        'in the namespace "shop"'
    )


def test_a_request_is_checked_for_what_it_wants_unless_a_master_sends_it() -> None:
    path = "/api/v1/namespaces/shop/pods/web"
    target = parse_target(path)
    authorizer = cluster(GET_PODS).authorizer
    authorizer.check_request(Request("GET", path, user=ROBOT), target)
    authorizer.check_request(Request("DELETE", path, user=ADMIN), target)
    with pytest.raises(StatusError, match='cannot delete resource "pods"'):
        authorizer.check_request(Request("DELETE", path, user=ROBOT), target)
    with pytest.raises(StatusError, match='cannot get path "/metrics"'):
        authorizer.check_request(Request("GET", "/metrics", user=ROBOT), None)


def with_robot() -> ApiServer:
    api = ApiServer(clock=SystemClock())
    api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    api.insert({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "shop"}})
    return api


def test_a_token_names_its_account_until_it_expires() -> None:
    api = with_robot()
    token, _ = api.tokens.make("shop", "robot", timedelta(hours=1))
    user = api.tokens.user_of(token)
    assert user is not None
    assert (user.name, user.groups) == (ROBOT.name, ROBOT.groups)
    old, _ = api.tokens.make("shop", "robot", timedelta(hours=-1))
    assert api.tokens.user_of(old) is None


@pytest.mark.parametrize(
    "spoil", [lambda t: t[:-2] + "xx", lambda t: "x" + t, lambda t: "", lambda t: "..", lambda t: "a.é.c"]
)
def test_a_token_that_was_tampered_with_is_worth_nothing(spoil: Any) -> None:
    api = with_robot()
    token, _ = api.tokens.make("shop", "robot", timedelta(hours=1))
    assert api.tokens.user_of(spoil(token)) is None


def test_a_token_of_another_server_is_worth_nothing() -> None:
    one, other = with_robot(), ApiServer(clock=SystemClock(), seed=5)
    token, _ = one.tokens.make("shop", "robot", timedelta(hours=1))
    assert other.tokens.user_of(token) is None


def test_fixed_tokens_are_kept() -> None:
    api = with_robot()
    api.tokens.add_fixed("secret", ADMIN)
    assert api.tokens.user_of("secret") is ADMIN
