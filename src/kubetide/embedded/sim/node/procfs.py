"""The files of /proc and /sys that describe a simulated machine: topology, memory, ticks, pressure."""

from dataclasses import dataclass

from kubetide.api.values.cpuset import CpuSet
from kubetide.embedded.sim.node.cgroupfs import pressure_text
from kubetide.embedded.sim.node.kernel import Kernel, Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How logical CPUs are arranged: sockets, one NUMA node each, cores, threads. CPU n and n + cores are siblings."""

    cpus: int
    sockets: int = 1
    threads: int = 1

    @property
    def cores(self) -> int:
        return max(1, self.cpus // self.threads)

    def core_of(self, cpu: int) -> int:
        return cpu % self.cores

    def socket_of(self, cpu: int) -> int:
        return self.core_of(cpu) * self.sockets // self.cores

    def cpus_of_socket(self, socket: int) -> CpuSet:
        return CpuSet.of(cpu for cpu in range(self.cpus) if self.socket_of(cpu) == socket)

    def siblings(self, cpu: int) -> CpuSet:
        return CpuSet.of(other for other in range(self.cpus) if self.core_of(other) == self.core_of(cpu))


def static_files(topology: Topology, machine: Machine) -> dict[str, str]:
    """Return what never changes by itself; writing replaces it."""
    everything = str(CpuSet.of(range(topology.cpus)))
    nodes = str(CpuSet.of(range(topology.sockets)))
    files = {
        "/proc/cpuinfo": "".join(
            f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Simulated CPU @ 2.50GHz\n"
            f"physical id\t: {topology.socket_of(cpu)}\ncore id\t\t: {topology.core_of(cpu)}\nflags\t\t: fpu sse2\n\n"
            for cpu in range(topology.cpus)
        ),
        "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/vda1\n",
        "/proc/filesystems": "nodev\tcgroup\nnodev\tcgroup2\n",
        "/proc/sys/vm/min_free_kbytes": "67584\n",
        "/proc/sys/vm/watermark_scale_factor": "10\n",
        "/proc/sys/kernel/sched_core": "0\n",
        "/proc/sys/kernel/osrelease": "6.1.0-sim\n",
        "/sys/devices/system/cpu/online": everything + "\n",
        "/sys/devices/system/cpu/present": everything + "\n",
        "/sys/devices/system/cpu/possible": everything + "\n",
        "/sys/devices/system/cpu/smt/active": ("1" if topology.threads > 1 else "0") + "\n",
        "/sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
        "/sys/devices/system/node/online": nodes + "\n",
        "/sys/devices/system/node/possible": nodes + "\n",
    }
    for cpu in range(topology.cpus):
        base = f"/sys/devices/system/cpu/cpu{cpu}"
        socket = topology.socket_of(cpu)
        siblings = str(topology.siblings(cpu))
        files |= {
            f"{base}/online": "1\n",
            f"{base}/topology/core_id": f"{topology.core_of(cpu)}\n",
            f"{base}/topology/physical_package_id": f"{socket}\n",
            f"{base}/topology/thread_siblings_list": siblings + "\n",
            f"{base}/topology/core_siblings_list": f"{topology.cpus_of_socket(socket)}\n",
        }
        for index, level, kind, shared, identity in (
            (0, 1, "Data", siblings, topology.core_of(cpu)),
            (1, 1, "Instruction", siblings, topology.core_of(cpu)),
            (2, 2, "Unified", siblings, topology.core_of(cpu)),
            (3, 3, "Unified", str(topology.cpus_of_socket(socket)), socket),
        ):
            files |= {
                f"{base}/cache/index{index}/level": f"{level}\n",
                f"{base}/cache/index{index}/type": f"{kind}\n",
                f"{base}/cache/index{index}/id": f"{identity}\n",
                f"{base}/cache/index{index}/shared_cpu_list": shared + "\n",
            }
    kib = int(machine.memory_bytes) // 1024 // topology.sockets
    for node in range(topology.sockets):
        cpus = f"{topology.cpus_of_socket(node)}\n"
        text = f"Node {node} MemTotal:       {kib} kB\nNode {node} MemFree:        {kib // 2} kB\n"
        for root in (f"/sys/devices/system/node/node{node}", f"/sys/bus/node/devices/node{node}"):
            files |= {f"{root}/cpulist": cpus, f"{root}/meminfo": text}
    return files


def proc_stat(kernel: Kernel, machine: Machine) -> str:
    """Return /proc/stat with 100 ticks a second: busy is what all groups used."""
    busy = int(kernel.usage_of(machine.tree.root) * 100)
    idle = max(0, int(len(machine.cpus) * kernel.now * 100) - busy)
    system = busy // 5
    first = f"cpu  {busy - system} 0 {system} {idle} 0 0 0 0 0 0\n"
    return first + f"ctxt 0\nbtime 0\nprocesses 1\nprocs_running {1 if busy else 0}\nprocs_blocked 0\n"


def proc_meminfo(kernel: Kernel, machine: Machine) -> str:
    """Return /proc/meminfo from what processes hold and the page cache."""
    anon, file = kernel.memory_of(machine.tree.root)
    total = int(machine.memory_bytes)
    used = min(total, int(anon + machine.kernel_memory))
    cached = min(total - used, int(file))
    values = {
        "MemTotal": total, "MemFree": total - used - cached, "MemAvailable": total - used, "Buffers": 0,
        "Cached": cached, "SwapCached": 0, "Active": used + cached // 2, "Inactive": cached - cached // 2,
        "Active(anon)": used, "Inactive(anon)": 0, "Active(file)": cached // 2, "Inactive(file)": cached - cached // 2,
        "Unevictable": 0, "SwapTotal": 0, "SwapFree": 0, "Slab": int(machine.kernel_memory),
    }  # fmt: skip
    return "".join(f"{name + ':':<16}{value // 1024:>9} kB\n" for name, value in values.items())


def proc_pressure(kernel: Kernel, machine: Machine, kind: str) -> str:
    """Return a file of /proc/pressure; the node feels the worst of its groups."""
    return pressure_text(kernel.pressure_of(machine.tree.root, kind), full=kind != "cpu")


def lscpu_extended(topology: Topology) -> str:
    """Return what `lscpu -e=CPU,NODE,SOCKET,CORE,CACHE,ONLINE` prints."""
    lines = ["CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE"]
    for cpu in range(topology.cpus):
        core, socket = topology.core_of(cpu), topology.socket_of(cpu)
        lines.append(f"{cpu:>3} {socket:>4} {socket:>6} {core:>4} {core}:{core}:{core}:{socket} yes")
    return "\n".join(lines) + "\n"
