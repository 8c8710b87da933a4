"""Where this node's files are: the roots of the settings, the cgroup driver, and whether anything can be read there."""

from dataclasses import replace

from kubetide.api.qos.cgroups import CgroupDriver, CgroupPaths
from kubetide.errors import SettingsError, TerminalError
from kubetide.node.core.layout import Layout
from kubetide.node.host import detect
from kubetide.node.host.protocol import Host
from kubetide.node.settings import NodeSettings


class HostUnreadable(TerminalError):
    """A root of the host cannot be read."""


def layout_of(settings: NodeSettings, *, version: int) -> Layout:
    """Return the layout that the settings describe."""
    return Layout(
        version=version,
        paths=CgroupPaths(CgroupDriver.SYSTEMD, settings.cgroup_prefix),
        cgroup_root=settings.cgroup_root_dir,
        sys_root=settings.sys_root_dir,
        sys_fs_root=settings.sys_fs_root_dir,
        proc_root=settings.proc_root_dir,
        var_run_root=settings.var_run_root_dir,
        run_root=settings.run_root_dir,
        kubelet_root=settings.var_lib_kubelet_dir or settings.kubelet_root_dir,
    )


def with_driver(layout: Layout, settings: NodeSettings, host: Host) -> Layout:
    """Return the layout with the driver that the flag or the directories say; systemd if neither does."""
    named, prefix = settings.cgroup_driver, settings.cgroup_prefix
    if named:
        if named not in list(CgroupDriver):
            raise SettingsError(f"{named!r} is neither systemd nor cgroupfs", field="cgroup-driver")
        return replace(layout, paths=CgroupPaths(CgroupDriver(named), prefix))
    layout = replace(layout, paths=CgroupPaths(layout.paths.driver, prefix or layout.paths.prefix))
    found = detect.driver_by_directories(host, layout)
    if found is None:
        return layout
    return replace(layout, paths=CgroupPaths(found, layout.paths.prefix))


def check_host(host: Host, layout: Layout) -> None:
    """Raise HostUnreadable if a root of the host cannot be read: nothing the agent does would work."""
    for path in (layout.proc("stat"), layout.proc("meminfo")):
        try:
            host.read(path)
        except OSError as error:
            raise HostUnreadable(f"cannot read {path}: {error}") from error
    if not host.exists(layout.cgroup_dir("cpu", "")):
        raise HostUnreadable(f"no cgroups at {layout.cgroup_dir('cpu', '')}")


def missing_features(host: Host, layout: Layout) -> list[detect.Feature]:
    """Return what the kernel of this node does not have."""
    try:
        cpuinfo = host.read(layout.proc("cpuinfo"))
    except OSError:
        cpuinfo = ""
    return [feature for feature in detect.kernel_features(host, layout, cpuinfo) if not feature.present]
