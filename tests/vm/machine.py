"""An emulated machine for tests: Debian's kernel under qemu, with cgroup v2, in a few seconds and without root.

The guest looks through at this machine's files (9p, read-only) with a layer in memory above, so it has the same
Python and the same repository; nothing it writes comes back, except what lands in the exchange folder. It runs one
command and switches itself off.

Needed: `qemu-system-x86_64` and a static `busybox` on the PATH (Debian: qemu-system-x86, busybox-static), and a
kernel: the one that `make vm-kernel` fetched, or a package that is installed or unpacked into the folder that
KUBETIDE_VM_KERNEL names (`dpkg-deb -x linux-image-….deb`). The cloud flavour of the kernel has no 9p.
"""

import lzma
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
DRIVERS = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
MEMORY_MIB = 1536
CPUS = "4,sockets=1,cores=2,threads=2"
"""Enough of them to take some away, and with siblings: both threads of a core go to best-effort work together."""
CPU_MODEL = "max,vendor=GenuineIntel"
"""All that the emulator knows; under another vendor's name the guest does not see that threads share a core."""

_FIRST_PROCESS = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
fail() { echo "guest: $1"; poweroff -f; }
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
while read -r driver; do insmod "/drivers/$driver" || fail "no driver $driver"; done < /drivers/order
mkdir -p /below /above /root
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=524288 files /below || fail "no files"
mount -t tmpfs none /above
mkdir /above/changes /above/work
mount -t overlay -o lowerdir=/below,upperdir=/above/changes,workdir=/above/work none /root || fail "no overlay"
mount -t proc none /root/proc
mount -t sysfs none /root/sys
mount -t devtmpfs none /root/dev
mkdir -p /root/dev/shm /root/exchange
mount -t tmpfs none /root/dev/shm
mount -t tmpfs none /root/run
mkdir /root/run/tmp
mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=524288 exchange /root/exchange || fail "no exchange"
mount -t cgroup2 none /root/sys/fs/cgroup || fail "no cgroups"
for controller in $(cat /root/sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" > /root/sys/fs/cgroup/cgroup.subtree_control
done
ifconfig lo 127.0.0.1 up
cp /bin/busybox /root/run/busybox
exec switch_root /root /run/busybox sh /exchange/start
"""

_START = """/bin/sh /exchange/command > /exchange/output 2>&1
echo $? > /exchange/code
sync
/run/busybox poweroff -f
"""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the machine is made of."""

    qemu: str
    busybox: str
    kernel: Path
    modules: Path


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the command in the guest ended."""

    code: int
    output: str


def find_parts() -> Parts | str:
    """Return the parts, or what is missing."""
    qemu, busybox = shutil.which("qemu-system-x86_64"), shutil.which("busybox")
    if qemu is None:
        return "needs qemu: install qemu-system-x86"
    if busybox is None or b"/lib64/ld-linux" in Path(busybox).read_bytes()[:4096]:
        return "needs a static busybox: install busybox-static"
    named = os.environ.get("KUBETIDE_VM_KERNEL")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for place in [Path(named)] if named else [cache / "kubetide" / "vm", Path("/")]:
        for kernel in sorted((place / "boot").glob("vmlinuz-*"), reverse=True):
            version = kernel.name.removeprefix("vmlinuz-")
            for modules in (place / "lib/modules" / version, place / "usr/lib/modules" / version):
                if any(modules.rglob("9pnet_virtio.ko*")):
                    return Parts(qemu, busybox, kernel, modules)
    return "needs a Debian kernel: make vm-kernel"


def run_in_guest(parts: Parts, work: Path, command: Sequence[str], *, timeout: float) -> Outcome:
    """Boot, run a command in the repository with this environment's Python, and return how it ended."""
    exchange = work / "exchange"
    exchange.mkdir()
    (exchange / "start").write_text(_START)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    # Not /tmp: the repository itself may be there, and others go on writing to it.
    kept |= {"TMPDIR": "/run/tmp"}
    kept |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "src:tests", "KUBETIDE_IN_VM": "1"}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in kept.items())
    (exchange / "command").write_text(f"{exports}cd {shlex.quote(str(REPOSITORY))}\nexec {shlex.join(command)}\n")
    initramfs = work / "initramfs"
    initramfs.write_bytes(_archive(_contents(parts)))
    console = work / "console"
    arguments = [
        *(parts.qemu, "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", CPU_MODEL),
        *("-smp", CPUS, "-m", str(MEMORY_MIB), "-nodefaults", "-no-user-config", "-no-reboot"),
        *("-display", "none", "-serial", f"file:{console}"),
        *("-kernel", str(parts.kernel), "-initrd", str(initramfs)),
        *("-append", "console=ttyS0 quiet panic=-1 psi=1 cgroup_no_v1=all mitigations=off"),
        *("-fsdev", "local,id=files,path=/,security_model=none,readonly=on,multidevs=remap"),
        *("-device", "virtio-9p-pci,fsdev=files,mount_tag=files"),
        *("-fsdev", f"local,id=exchange,path={exchange},security_model=none"),
        *("-device", "virtio-9p-pci,fsdev=exchange,mount_tag=exchange"),
    ]
    try:
        done = subprocess.run(
            arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(124, f"no end within {timeout:.0f} s\n{_tail(exchange / 'output')}{_tail(console)}")
    if not (exchange / "code").exists():
        return Outcome(125, f"the guest did not get to the command\n{done.stderr[-2000:]}{_tail(console)}")
    return Outcome(int((exchange / "code").read_text()), (exchange / "output").read_text(errors="replace"))


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-3000:] if path.exists() else ""


def _contents(parts: Parts) -> list[tuple[str, int, bytes]]:
    """Return the files of the initramfs: (name, mode, data)."""
    drivers = _drivers(parts.modules)
    order = "".join(f"{name}.ko\n" for name, _ in drivers)
    return [
        *((name, 0o040755, b"") for name in ("bin", "proc", "sys", "dev", "drivers")),
        ("bin/busybox", 0o100755, Path(parts.busybox).read_bytes()),
        *((f"drivers/{name}.ko", 0o100644, data) for name, data in drivers),
        ("drivers/order", 0o100644, order.encode()),
        ("init", 0o100755, _FIRST_PROCESS.encode()),
    ]


def _drivers(modules: Path) -> list[tuple[str, bytes]]:
    """Return the drivers and what they need, in the order of loading."""
    files = {_plain(path.name): path for path in modules.rglob("*.ko*")}
    built_in = {_plain(line.rsplit("/", 1)[-1]) for line in (modules / "modules.builtin").read_text().split()}
    chosen: dict[str, bytes] = {}

    def choose(name: str) -> None:
        if name in chosen or name in built_in:
            return
        path = files[name]
        data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        needs = re.search(rb"\0depends=([a-z0-9_,-]*)\0", data)
        for needed in needs[1].decode().split(",") if needs and needs[1] else ():
            choose(needed.replace("-", "_"))
        chosen[name] = data

    for name in DRIVERS:
        choose(name)
    return list(chosen.items())


def _plain(name: str) -> str:
    return name.split(".ko")[0].replace("-", "_")


def _archive(contents: list[tuple[str, int, bytes]]) -> bytes:
    """Return a cpio archive in the form the kernel unpacks (`newc`)."""
    parts: list[bytes] = []
    for number, (name, mode, data) in enumerate([*contents, ("TRAILER!!!", 0, b"")], start=1):
        label = name.encode() + b"\0"
        numbers = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(label), 0)
        header = b"070701" + b"".join(f"{value:08x}".encode() for value in numbers) + label
        parts += [header, b"\0" * (-len(header) % 4), data, b"\0" * (-len(data) % 4)]
    return b"".join(parts)
