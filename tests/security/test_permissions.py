"""What components may read and write, by the permissions that the manifests grant."""

import pytest

from kubetide.install.rbac import CLUSTER, LOCAL, Permission

_READS = {"get", "list", "watch"}


def test_no_component_reads_secrets_of_the_whole_cluster() -> None:
    for component, permissions in CLUSTER.items():
        for one in permissions:
            assert not {"secrets", "*"} & set(one.resources) or one.group.endswith("metrics.k8s.io"), (component, one)


@pytest.mark.parametrize("resource", ["secrets", "configmaps"])
def test_what_is_written_in_a_shared_namespace_is_named(resource: str) -> None:
    checked = 0
    for component, listed in LOCAL.items():
        for local in listed:
            one: Permission = local.right
            if resource in one.resources and {"update", "patch", "delete"} & set(one.verbs):
                assert one.names, f"{component} may change any of the {resource}"
                checked += 1
    assert checked >= (3 if resource == "secrets" else 2)


def test_secrets_are_read_by_name_alone() -> None:
    for component, listed in LOCAL.items():
        for local in listed:
            if "secrets" in local.right.resources and _READS & set(local.right.verbs):
                assert local.right.names, component
                assert set(local.right.verbs) <= {"get", "update"}, component
