"""Which question a path asks, and what a caller must be allowed to do for it."""

import pytest

from kubetide.errors import InvalidInput
from kubetide.metrics.core.identity import User, bound_node, read_proxies, vouched_user
from kubetide.metrics.core.requests import parse_path

USAGE, CUSTOM = "/apis/metrics.k8s.io/v1beta1", "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (f"{USAGE}/nodes", "list nodes"),
        (f"{USAGE}/nodes/n-1", "get nodes n-1"),
        (f"{USAGE}/pods", "list pods"),
        (f"{USAGE}/namespaces/shop/pods", "list pods in shop"),
        (f"{USAGE}/namespaces/shop/pods/web-1", "get pods web-1 in shop"),
        (f"{CUSTOM}/namespaces/shop/pods/*/rps", "get pods/rps * in shop"),
        (f"{CUSTOM}/namespaces/shop/services/web/rps", "get services/rps web in shop"),
        (f"{CUSTOM}/namespaces/shop/deployments.apps/web/rps", "get deployments.apps/rps web in shop"),
        (f"{CUSTOM}/namespaces/shop/metrics/rps", "get metrics rps in shop"),
        (f"{CUSTOM}/nodes/n-1/load", "get nodes/load n-1"),
        (f"{EXTERNAL}/namespaces/shop/queue%20length", "list queue length in shop"),
    ],
)
def test_what_a_path_asks_in_the_words_of_the_api_server(path: str, asked: str) -> None:
    question = parse_path(path)
    assert question is not None
    found = question.attributes()
    resource = "/".join(part for part in (found["resource"], found.get("subresource", "")) if part)
    words = [found["verb"], resource, found.get("name", ""), f"in {found['namespace']}" if "namespace" in found else ""]
    assert " ".join(word for word in words if word) == asked


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/apis",
        "/apis/metrics.k8s.io",
        "/apis/metrics.k8s.io/v1",
        f"{USAGE}/secrets",
        f"{USAGE}/pods/web-1",
        f"{USAGE}/namespaces/shop/nodes",
        f"{USAGE}/namespaces/shop/pods/web-1/log",
        f"{USAGE}/namespaces//pods",
        f"{CUSTOM}/namespaces/shop/pods",
        f"{EXTERNAL}/queue",
        f"{EXTERNAL}/namespaces/shop/queue/more",
    ],
)
def test_what_is_not_served(path: str) -> None:
    assert parse_path(path) is None


PROXIES = {
    "requestheader-client-ca-file": "PEM",
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}


def test_headers_of_a_trusted_proxy_name_the_caller() -> None:
    headers = [
        ("x-remote-user", "ann"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Extra-Scopes%2Fx", "1"),
        ("X-Remote-Extra-Scopes%2Fx", "2"),
    ]
    user = vouched_user(read_proxies(PROXIES), headers)
    assert user == User(name="ann", groups=("a", "b"), extra={"scopes/x": ("1", "2")})


def test_headers_without_a_name_vouch_for_nobody() -> None:
    assert vouched_user(read_proxies(PROXIES), [("X-Remote-Group", "system:masters")]) is None
    assert vouched_user(read_proxies({}), [("X-Remote-User", "ann")]) is None


@pytest.mark.parametrize("text", ["[", '"x"', "[1]"])
def test_a_broken_configmap_is_named_with_its_key(text: str) -> None:
    with pytest.raises(InvalidInput, match="requestheader-allowed-names"):
        read_proxies({**PROXIES, "requestheader-allowed-names": text})


AGENT = "system:serviceaccount:kube-system:kubetide-node"
BOUND = {"authentication.kubernetes.io/pod-name": ("agent-x",), "authentication.kubernetes.io/pod-uid": ("u",)}


@pytest.mark.parametrize(
    ("user", "node"),
    [
        pytest.param(
            User(name=AGENT, extra={"authentication.kubernetes.io/node-name": ("n-1",)}), "n-1", id="claim-of-the-node"
        ),
        pytest.param(User(name=AGENT, extra=BOUND), "n-2", id="by-the-pod-before-1.30"),
        pytest.param(
            User(name=AGENT, extra={**BOUND, "authentication.kubernetes.io/pod-uid": ("other",)}), "", id="another-pod"
        ),
        pytest.param(User(name=AGENT), "", id="bound-to-nothing"),
        pytest.param(User(name="ann", extra=BOUND), "", id="no-service-account"),
        pytest.param(
            User(name=AGENT, extra={"authentication.kubernetes.io/node-name": ("n-1", "n-2")}), "", id="two-claims"
        ),
    ],
)
def test_a_token_is_bound_to_one_node(user: User, node: str) -> None:
    places = {("kube-system", "agent-x", "u"): "n-2"}
    assert bound_node(user, lambda *pod: places.get(pod, "")) == node
