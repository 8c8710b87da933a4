"""Where pods live in the cgroup tree, with both drivers, with a prefix, and back."""

import pytest

from kubetide.api.qos.cgroups import (
    CgroupDriver,
    CgroupPaths,
    ContainerIdError,
    join,
    kube_qos_of_path,
    split_container_id,
)

UID = "7712555c-ce62-454a-9e18-9ff0217b8941"
SYSTEMD = CgroupPaths(CgroupDriver.SYSTEMD)
CGROUPFS = CgroupPaths(CgroupDriver.CGROUPFS)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        pytest.param(
            SYSTEMD,
            "kubepods.slice/kubepods-burstable.slice/"
            "kubepods-burstable-pod7712555c_ce62_454a_9e18_9ff0217b8941.slice/cri-containerd-abc.scope",
            id="systemd",
        ),
        pytest.param(CGROUPFS, f"kubepods/burstable/pod{UID}/abc", id="cgroupfs"),
        pytest.param(
            CgroupPaths(CgroupDriver.SYSTEMD, "a"),
            "a.slice/a-kubepods.slice/a-kubepods-burstable.slice/"
            "a-kubepods-burstable-pod7712555c_ce62_454a_9e18_9ff0217b8941.slice/cri-containerd-abc.scope",
            id="systemd-under-a-prefix",
        ),
        pytest.param(
            CgroupPaths(CgroupDriver.CGROUPFS, "a/b"),
            f"a/b/kubepods/burstable/pod{UID}/abc",
            id="cgroupfs-under-a-prefix",
        ),
    ],
)
def test_a_container_is_found_where_the_kubelet_puts_it(paths: CgroupPaths, expected: str) -> None:
    directory = paths.container(paths.pod("Burstable", UID), "containerd://abc")
    assert directory == expected
    pod, container = directory.split("/")[-2:]
    assert paths.pod_id(pod) == UID
    assert paths.container_hash(container) == "abc"


def test_monitors_of_cri_o_are_no_containers() -> None:
    assert SYSTEMD.container_hash("crio-conmon-abc.scope") is None
    assert SYSTEMD.container_hash("crio-abc.scope") == "abc"


@pytest.mark.parametrize("text", ["abc", "crio://abc", "://abc", ""])
def test_unknown_container_ids_are_refused(text: str) -> None:
    with pytest.raises(ContainerIdError):
        split_container_id(text)


@pytest.mark.parametrize(
    ("directory", "shared"),
    [
        pytest.param("", True, id="root"),
        pytest.param(".", True, id="root-as-a-dot"),
        pytest.param("/", True, id="root-as-a-slash"),
        pytest.param("kubepods.slice", True, id="kube-root"),
        pytest.param("kubepods.slice/kubepods-besteffort.slice/", True, id="tier"),
        pytest.param("kubepods.slice/../etc", True, id="leaves-the-root"),
        pytest.param("kubepods.slice/kubepods-podx.slice", False, id="pod"),
        pytest.param("host-latency-sensitive/nginx", False, id="host-application"),
    ],
)
def test_shared_directories_are_recognised(directory: str, shared: bool) -> None:
    assert SYSTEMD.is_shared(directory) is shared


def test_the_cgroup_above_a_prefixed_kube_root_is_shared_too() -> None:
    paths = CgroupPaths(CgroupDriver.CGROUPFS, "tenants/one")
    assert paths.is_shared("tenants/one")
    assert paths.is_shared("tenants")
    assert not paths.is_shared("tenants/two")


def test_qos_is_guessed_from_a_path() -> None:
    assert kube_qos_of_path("kubepods/besteffort/podx") == "BestEffort"
    assert kube_qos_of_path("kubepods/burstable/podx") == "Burstable"
    assert kube_qos_of_path("") == "Guaranteed"


def test_joining_leaves_out_empty_parts_and_cleans() -> None:
    assert join("", "a/", "/b/") == "a/b"
    assert join() == ""
    assert join("//a") == "/a"


def test_a_slice_that_a_runtime_names_alone_is_written_out() -> None:
    short, above = "kubepods-besteffort-podX.slice", "/kubepods.slice/kubepods-besteffort.slice/"
    systemd, plain = CgroupPaths(CgroupDriver.SYSTEMD), CgroupPaths(CgroupDriver.CGROUPFS)
    assert systemd.full_parent(short) == above + short
    assert systemd.full_parent(above + short) == above + short
    assert plain.full_parent("/kubepods/besteffort/podX") == "/kubepods/besteffort/podX"
