"""Which server, as whom: kubeconfig files and the pod's own identity."""

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubetide.clock import SystemClock
from kubetide.kube.client.credentials import ExecPlugin, Presented, TokenFile
from kubetide.kube.client.kubeconfig import Access, KubeconfigError, from_files, in_cluster, load

CLOCK = SystemClock()


def write(
    path: Path,
    *,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    name: str = "main",
    current: bool = True,
    namespace: str = "",
) -> Path:
    context = {"cluster": name, "user": name, **({"namespace": namespace} if namespace else {})}
    config = {
        "clusters": [{"name": name, "cluster": cluster or {"server": "https://example.com:6443"}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": context}],
        **({"current-context": name} if current else {}),
    }
    path.write_text(yaml.safe_dump(config))
    return path


def presented(access: Access) -> Presented:
    return asyncio.run(_present(access))


async def _present(access: Access) -> Presented:
    return await access.credentials.present()


def test_the_current_context_names_cluster_user_and_namespace(tmp_path: Path) -> None:
    file = write(
        tmp_path / "config",
        cluster={
            "server": "https://example.com:6443/prefix/",
            "certificate-authority-data": base64.b64encode(b"CA").decode(),
            "tls-server-name": "api.internal",
            "proxy-url": "http://proxy:3128",
        },
        user={"token": "secret"},
        namespace="shop",
    )
    access = from_files([file], clock=CLOCK)
    assert access.server == "https://example.com:6443/prefix"
    assert access.trust.ca.read() == "CA"
    assert (access.namespace, access.tls_server_name, access.proxy) == ("shop", "api.internal", "http://proxy:3128")
    assert presented(access).headers == (("Authorization", "Bearer secret"),)


def test_another_context_can_be_chosen(tmp_path: Path) -> None:
    one = write(tmp_path / "one", name="one")
    two = write(tmp_path / "two", name="two", user={"username": "ann", "password": "x"})
    assert from_files([one, two], clock=CLOCK).context == "one"
    access = from_files([one, two], clock=CLOCK, context="two")
    assert presented(access).headers == (("Authorization", "Basic YW5uOng="),)


def test_of_several_files_the_first_that_names_something_counts(tmp_path: Path) -> None:
    first = write(tmp_path / "first", user={"token": "first"}, current=False)
    second = write(tmp_path / "second", user={"token": "second"})
    environment = {"KUBECONFIG": os.pathsep.join([str(first), str(tmp_path / "missing"), str(second)])}
    access = load(clock=CLOCK, environment=environment, home=tmp_path)
    assert presented(access).headers == (("Authorization", "Bearer first"),)


def test_relative_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "ca.crt").write_text("CA")
    (folder / "token").write_text("from-file\n")
    file = write(
        folder / "config",
        cluster={"server": "https://x", "certificate-authority": "ca.crt"},
        user={"tokenFile": "token"},
    )
    access = from_files([file], clock=CLOCK)
    assert access.trust.ca.read() == "CA"
    assert isinstance(access.credentials, TokenFile)
    assert presented(access).headers == (("Authorization", "Bearer from-file"),)


def test_impersonation_repeats_the_groups(tmp_path: Path) -> None:
    user = {"token": "t", "as": "ann", "as-groups": ["dev", "ops"], "as-user-extra": {"why": ["test"]}}
    access = from_files([write(tmp_path / "config", user=user)], clock=CLOCK)
    assert presented(access).headers == (
        ("Authorization", "Bearer t"),
        ("Impersonate-User", "ann"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-why", "test"),
    )


def test_an_exec_plugin_is_taken_over(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "get-token", "args": ["--fast"]}
    access = from_files([write(tmp_path / "config", user={"exec": plugin})], clock=CLOCK)
    assert isinstance(access.credentials, ExecPlugin)


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        pytest.param({"server": "ftp://x"}, {}, "no http", id="address"),
        pytest.param({"server": "https://x", "certificate-authority-data": "%%%"}, {}, "base64", id="data"),
        pytest.param({}, {"client-certificate": "a.crt"}, "client-key", id="certificate-without-key"),
        pytest.param({}, {"auth-provider": {"name": "gcp"}}, "exec plugin", id="auth-provider"),
        pytest.param({}, {"exec": {"apiVersion": "v7", "command": "x"}}, "v7", id="exec-version"),
        pytest.param(
            {}, {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}, "command", id="exec-without-command"
        ),
        pytest.param(
            {},
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "interactiveMode": "Always"}},
            "terminal",
            id="exec-interactive",
        ),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], message: str
) -> None:
    file = write(tmp_path / "config", cluster=cluster, user=user)
    with pytest.raises(KubeconfigError, match=message):
        from_files([file], clock=CLOCK)


def test_missing_pieces_are_named(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="cannot be read"):
        from_files([tmp_path / "missing"], clock=CLOCK)
    with pytest.raises(KubeconfigError, match="there is no context 'other'; there are: "):
        from_files([write(tmp_path / "config")], clock=CLOCK, context="other")
    with pytest.raises(KubeconfigError, match="no context"):
        from_files([write(tmp_path / "config", current=False)], clock=CLOCK)
    (tmp_path / "bad").write_text("{")
    with pytest.raises(KubeconfigError, match="not YAML"):
        from_files([tmp_path / "bad"], clock=CLOCK)
    with pytest.raises(KubeconfigError, match="no cluster"):
        load(clock=CLOCK, environment={}, home=tmp_path / "empty")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("clusters: 5", r"\$\.clusters", id="no-list"),
        pytest.param("users: [text]", r"\$\.users\[0\]", id="no-entry"),
        pytest.param("contexts: [{name: a, context: b}]", r"\$\.contexts\[0\]\.context", id="no-object"),
        pytest.param("users: [{name: a, user: {token: 12}}]", r"\$\.users\[0\]\.user\.token", id="number-as-token"),
        pytest.param("users: [{name: a, user: {exec: {env: [1]}}}]", r"\.exec\.env\[0\]", id="no-variable"),
        pytest.param("current-context: [a]", "current-context", id="no-name"),
        pytest.param("[a]", "is no kubeconfig", id="a-list"),
        pytest.param(b"\xff\xfe\x00", "not YAML", id="binary"),
    ],
)
def test_what_has_another_shape_is_refused_by_its_place(tmp_path: Path, text: str | bytes, told: str) -> None:
    (tmp_path / "config").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(KubeconfigError, match=told) as caught:
        from_files([tmp_path / "config"], clock=CLOCK)
    assert str(tmp_path / "config") in str(caught.value)


def test_nulls_and_unknown_fields_are_passed_over(tmp_path: Path) -> None:
    user = {"token": None, "exec": None, "as-groups": None, "later": {"deep": 1}}
    access = from_files([write(tmp_path / "config", user=user)], clock=CLOCK)
    assert access.server == "https://example.com:6443"


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("pod-token")
    (tmp_path / "ca.crt").write_text("CA")
    (tmp_path / "namespace").write_text("shop\n")
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    access = in_cluster(environment=environment, folder=tmp_path)
    assert (access.server, access.namespace) == ("https://10.0.0.1:6443", "shop")
    assert presented(access).headers == (("Authorization", "Bearer pod-token"),)
    six = in_cluster(environment={"KUBERNETES_SERVICE_HOST": "fd00::1"}, folder=tmp_path)
    assert six.server == "https://[fd00::1]:443"
