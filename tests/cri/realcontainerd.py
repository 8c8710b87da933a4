"""A real containerd for tests: its own mount namespace, its own directories, cgroups only under `kubetide-cri`.

Needs root, a writable cgroup v1 mount, and the programs containerd (1.7 or newer, with its shim beside it), ctr, runc
and busybox (static). They are looked for in the directories of KUBETIDE_CRI_PATH, then in the cache folder that
`tests/tools/debian_packages.py` fills (`make containerd`), then in PATH.
"""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest

CGROUPS = Path("/sys/fs/cgroup")
PREFIX = "kubetide-cri"
IMAGE, PAUSE = "kubetide.test/busybox:1", "kubetide.test/pause:1"
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "busybox")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubetide" / "cri"


def find(name: str) -> str | None:
    """Return where a program is."""
    fetched = (str(CACHE / "usr/bin"), str(CACHE / "usr/sbin"))
    places = (os.environ.get("KUBETIDE_CRI_PATH", ""), *fetched, os.environ.get("PATH", ""), "/usr/sbin")
    return shutil.which(name, path=os.pathsep.join(places))


def need_containerd() -> None:
    """Skip the test unless a real containerd can be run here."""
    if os.geteuid() != 0:
        pytest.skip("real containers need root")
    if not os.access(CGROUPS / "cpu", os.W_OK) or not (CGROUPS / "cpu" / "cpu.shares").exists():
        pytest.skip("no writable cgroup v1 mount: run in a machine with one")
    missing = [name for name in PROGRAMS if find(name) is None]
    if missing:
        how = "`make containerd` and install runc and busybox-static, or set KUBETIDE_CRI_PATH"
        pytest.skip(f"{', '.join(missing)} not found: {how}")
    said = subprocess.run([find("containerd") or "", "--version"], capture_output=True, text=True, timeout=30).stdout
    found = re.search(r"\bv?(\d+)\.(\d+)\.\d+", said)
    if found is not None and (int(found[1]), int(found[2])) < (1, 7):
        pytest.skip(f"containerd {found[0]} has no NRI: `make containerd`, or set KUBETIDE_CRI_PATH")


@dataclass
class Containerd:
    """A containerd that tests may stop and start again."""

    root: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="kubetide-cri-")))
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.root / "containerd.sock"

    @property
    def nri(self) -> Path:
        return self.root / "nri.sock"

    def start(self) -> None:
        """Start containerd and wait until it answers."""
        for name in ("root", "state", "run", "opt", "nri-plugins", "nri-conf", "cni"):
            (self.root / name).mkdir(exist_ok=True)
        (self.root / "config.toml").write_text(self._config(), encoding="utf-8")
        programs = [find(name) or name for name in ("containerd", "runc")]
        path = os.pathsep.join([*(os.path.dirname(one) for one in programs), os.environ.get("PATH", "")])
        inside = (
            "mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir /run/containerd"
            f" && mount --bind {self.root}/run /run/containerd"
            f" && exec {programs[0]} --config {self.root}/config.toml"
        )
        with open(self.root / "containerd.log", "ab") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", inside],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PATH": path},
            )
        self._wait()

    def import_images(self) -> None:
        """Make the two images by hand and load them."""
        archive = self.root / "images.tar"
        write_images(archive)
        self._ctr("images", "import", str(archive))

    def stop(self) -> None:
        """End containerd; containers keep running under their shims."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=20)
            self.process = None

    def close(self) -> None:
        """End everything and leave nothing behind."""
        self.stop()
        remove_cgroups(PREFIX)
        shutil.rmtree(self.root, ignore_errors=True)

    def log(self) -> str:
        return (self.root / "containerd.log").read_text(encoding="utf-8")

    def _wait(self) -> None:
        for _ in range(300):
            assert self.process is not None
            if self.process.poll() is not None:
                pytest.skip(f"containerd does not start here: {self.log()[-300:]}")
            if self.socket.exists() and self.nri.exists():
                try:
                    self._ctr("version")
                    return
                except subprocess.CalledProcessError:
                    pass
            _pause()
        raise TimeoutError("containerd does not answer")

    def _ctr(self, *arguments: str) -> None:
        command = [find("ctr") or "ctr", "-a", str(self.socket), "-n", "k8s.io", *arguments]
        assert self.process is not None
        subprocess.run(
            ["nsenter", f"--mount=/proc/{self.process.pid}/ns/mnt", *command],
            check=True,
            capture_output=True,
            timeout=60,
        )

    def _config(self) -> str:
        cri = 'plugins."io.containerd.grpc.v1.cri"'
        return f"""version = 2
root = "{self.root}/root"
state = "{self.root}/state"
[grpc]
  address = "{self.socket}"
[{cri}]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [{cri}.cni]
    conf_dir = "{self.root}/cni"
  [{cri}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [{cri}.containerd.runtimes.runc.options]
      BinaryName = "{find("runc")}"
      SystemdCgroup = false
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.root}/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  disable_connections = false
  socket_path = "{self.nri}"
  plugin_path = "{self.root}/nri-plugins"
  plugin_config_path = "{self.root}/nri-conf"
"""


def write_images(target: Path) -> None:
    """Write a docker archive with one layer: busybox and its links."""
    busybox = find("busybox") or "busybox"
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name in ("bin", "tmp", "proc", "sys", "dev", "etc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            layer.addfile(entry)
        _file(layer, "bin/busybox", Path(busybox).read_bytes(), mode=0o755)
        for applet in applets:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            if applet != "busybox":
                layer.addfile(link)
    data = buffer.getvalue()
    manifest = []
    with tarfile.open(target, "w") as archive:
        _file(archive, "layer.tar", data)
        for image, command in ((PAUSE, ["/bin/sleep", "infinity"]), (IMAGE, ["/bin/sh"])):
            config = {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Env": ["PATH=/bin"], "Entrypoint": command},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(data).hexdigest()}"]},
                "history": [{"created_by": image}],
            }
            text = json.dumps(config).encode()
            name = f"{sha256(text).hexdigest()}.json"
            _file(archive, name, text)
            manifest.append({"Config": name, "RepoTags": [image], "Layers": ["layer.tar"]})
        _file(archive, "manifest.json", json.dumps(manifest).encode())


def _file(archive: tarfile.TarFile, name: str, data: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def _pause() -> None:
    """Give another process a moment."""
    threading.Event().wait(0.1)


def remove_cgroups(prefix: str) -> None:
    """Remove a cgroup tree in every hierarchy; processes still inside are ended by their id."""
    for top in CGROUPS.glob(f"*/{prefix}"):
        for directory, _, _ in os.walk(top, topdown=False):
            for _ in range(50):
                try:
                    for pid in (Path(directory) / "cgroup.procs").read_text(encoding="utf-8").split():
                        os.kill(int(pid), signal.SIGKILL)
                    os.rmdir(directory)
                    break
                except (OSError, ProcessLookupError):
                    _pause()
