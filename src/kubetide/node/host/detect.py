"""What this machine offers: its cgroup driver, and kernel features by the files they leave.

Nothing here is fatal. A feature that is missing is one clear line at the start, and whatever needs it stays quiet.
"""

from dataclasses import dataclass

from kubetide.api.qos.cgroups import CgroupDriver, CgroupPaths
from kubetide.node.core import files
from kubetide.node.core.formats import cpu
from kubetide.node.core.formats.numbers import FormatError, unsigned
from kubetide.node.core.layout import Layout
from kubetide.node.host.protocol import Host

DEFAULT_TICK_NANOS = 10_000_000


def tick_nanos(clk_tck: str) -> int:
    """Return the length of a clock tick from the answer of `getconf CLK_TCK`; 10 ms if it makes no sense."""
    try:
        per_second = unsigned(clk_tck.strip())
    except FormatError:
        return DEFAULT_TICK_NANOS
    return 1_000_000_000 // per_second if per_second else DEFAULT_TICK_NANOS


def driver_by_directories(host: Host, layout: Layout) -> CgroupDriver | None:
    """Guess the driver from the name of the kube root; systemd wins if both exist."""
    for driver in (CgroupDriver.SYSTEMD, CgroupDriver.CGROUPFS):
        paths = CgroupPaths(driver, layout.paths.prefix)
        if host.exists(layout.cgroup_dir("cpu", paths.kube_root)):
            return driver
    return None


def driver_by_kubelet(command_line: list[str], config: str | None) -> CgroupDriver | None:
    """Return the driver a kubelet was started with; None for a value that is no driver.

    The flag wins; without flag and config file the default is cgroupfs, as is a config file that does not say.
    """
    for position, word in enumerate(command_line):
        name, equals, value = word.partition("=")
        if name.lstrip("-") == "cgroup-driver" and word.startswith("-"):
            return _driver(value if equals else (command_line[position + 1 : position + 2] or [""])[0])
    for line in (config or "").split("\n"):
        name, colon, value = line.partition(":")
        if colon and name.strip().strip('"') == "cgroupDriver":
            return _driver(value.strip().strip("\"',"))
    return CgroupDriver.CGROUPFS


def _driver(text: str) -> CgroupDriver | None:
    try:
        return CgroupDriver(text)
    except ValueError:
        return None


def kubelet_config_path(command_line: list[str], working_directory: str) -> str | None:
    """Return the path of the kubelet's config file on the host, relative ones from its working directory."""
    for position, word in enumerate(command_line):
        name, equals, value = word.partition("=")
        if name.lstrip("-") == "config" and word.startswith("-"):
            path = value if equals else (command_line[position + 1 : position + 2] or [""])[0]
            if not path:
                return None
            return path if path.startswith("/") else f"{working_directory.rstrip('/')}/{path}"
    return None


def has_resctrl(cpuinfo: str) -> bool:
    """Return whether the CPU can partition its cache and memory bandwidth."""
    return {"cat_l3", "mba"} <= cpu.cpu_flags(cpuinfo)


def has_kidled(host: Host, layout: Layout) -> bool:
    """Return whether the kernel tracks idle pages."""
    return all(host.exists(layout.system_file(file)) for file in (files.KIDLED_SCAN_PERIOD, files.KIDLED_USE_HIERARCHY))


def has_pressure(host: Host, layout: Layout) -> bool:
    """Return whether cgroups have pressure files; on v2 they always do."""
    if layout.version == 2:
        return True
    return all(
        host.exists(layout.cgroup_file(file, layout.paths.kube_root))
        for file in (files.CPU_PRESSURE, files.MEMORY_PRESSURE, files.IO_PRESSURE)
    )


@dataclass(frozen=True, slots=True)
class Feature:
    """A kernel feature, whether it is there, and what is off without it."""

    name: str
    present: bool
    without: str


def kernel_features(host: Host, layout: Layout, cpuinfo: str) -> tuple[Feature, ...]:
    """List the features that parts of the agent depend on."""
    kube_root = layout.paths.kube_root

    def in_kube_root(file: files.CgroupFile) -> bool:
        try:
            return host.exists(layout.cgroup_file(file, kube_root))
        except files.NotOnThisVersion:
            return False

    return (
        Feature("pressure stall information per cgroup", has_pressure(host, layout), "no PSI samples"),
        Feature("CFS burst", in_kube_root(files.CPU_BURST), "no static CPU burst"),
        Feature("cpu.idle", in_kube_root(files.CPU_IDLE), "no idle scheduling of best-effort pods"),
        Feature("group identity", in_kube_root(files.CPU_BVT), "no CPU group identity"),
        Feature("memory.min", in_kube_root(files.MEMORY_MIN), "no memory protection"),
        Feature("memory watermarks per cgroup", in_kube_root(files.MEMORY_WMARK_RATIO), "no reclaim per pod"),
        Feature("idle page tracking", has_kidled(host, layout), "no cold memory samples"),
        Feature("cache and bandwidth allocation", has_resctrl(cpuinfo), "no resctrl groups"),
    )
