"""Pods as strategies see them, and who uses a node."""

from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.qos.cgroups import CgroupDriver, CgroupPaths
from kubetide.api.qos.slo_strategies import CgroupPath, HostApplication
from kubetide.api.values.codec import convert
from kubetide.node.core import usage
from kubetide.node.core.snapshot import host_application_directory, pod_state


def pod(uid: str = "a", container: str = "containerd://c", **labels: str) -> Pod:
    raw: dict[str, Any] = {
        "metadata": {"name": uid, "namespace": "x", "uid": uid, "labels": labels},
        "spec": {"containers": [{"name": "main"}, {"name": "not-started"}]},
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "containerStatuses": [{"name": "main", "containerID": container}],
        },
    }
    return convert(raw, Pod)


def test_a_container_without_a_usable_id_has_no_directory() -> None:
    state = pod_state(pod(container="strange://x"), CgroupPaths())
    assert [container.directory for container in state.containers] == ["", ""]
    assert pod_state(pod(), CgroupPaths()).containers[0].directory.endswith("/cri-containerd-c.scope")


@pytest.mark.parametrize("identity", ["", "containerd://", "containerd://..", "containerd://a/b", "containerd://../x"])
def test_an_id_that_leads_to_the_pod_or_elsewhere_is_not_usable(identity: str) -> None:
    state = pod_state(pod(container=identity), CgroupPaths(CgroupDriver.CGROUPFS))
    assert state.containers[0].directory == ""


def test_classes_are_derived_once() -> None:
    state = pod_state(pod(**{"koordinator.sh/qosClass": "BE"}), CgroupPaths())
    assert (state.raw_qos, state.qos, state.kube_qos, state.priority) == ("BE", "BE", "Burstable", "koord-batch")
    assert (state.key, state.is_active) == ("x/a", True)


def test_a_host_application_lives_where_its_path_says() -> None:
    paths = CgroupPaths()
    path = CgroupPath(base="KubepodsBesteffort", parent_dir="p/", relative_path="/r")
    assert host_application_directory(HostApplication(name="x", cgroup_path=path), paths) == (
        "kubepods.slice/kubepods-besteffort.slice/p/r"
    )


def test_a_metric_of_an_unknown_pod_counts() -> None:
    split = usage.split_usage(
        10.0,
        1.0,
        [pod("a"), pod("b", **{"koordinator.sh/qosClass": "BE"})],
        {"a": 1.0, "b": 2.0, "stranger": 3.0},
        [HostApplication(name="nginx", qos="LS"), HostApplication(name="silent")],
        {"nginx": 0.5},
        counts_pod=usage.is_not_best_effort,
        counts_application=usage.is_not_best_effort_application,
    )
    assert (split.pods, split.host_applications) == (4.0, 0.5)
    assert split.system == pytest.approx(3.5)


def test_the_system_keeps_at_least_what_is_reserved() -> None:
    split = usage.split_usage(
        1.0, 2.0, [], {"a": 5.0}, [], {}, counts_pod=lambda _: True, counts_application=lambda _: True
    )
    assert split.system == 2.0
