"""A real node for a real control plane: containerd and a kubelet, in directories and cgroups of their own.

Everything runs in one private mount namespace (the caller gives it a private network too, see `make real`): what the
kubelet and containerd insist on having under /run and /var/lib is bound to a folder of the test, and kernel settings
that the kubelet would write are files. Pods lie below the cgroup `kubetide-real`. Pods use the host's network: a CNI
configuration is there because the kubelet wants one, its plugin is never called.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cri.realcontainerd import CGROUPS, PAUSE, find, remove_cgroups, write_images
from e2e.controlplane import ControlPlane, find_program
from kubetide.clock import SystemClock
from kubetide.kube.client.certificates import issue

NAME = "real-node"
ADDRESS = "10.123.45.1"
TOP = "kubetide-real"
BOUND = {
    "run-containerd": "/run/containerd",
    "kubelet": "/var/lib/kubelet",
    "cni-cache": "/var/lib/cni",
    "log-containers": "/var/log/containers",
    "opt-containerd": "/opt/containerd",
}
# Kernel settings that the kubelet sets on its host; in here it finds them set.
TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "blkio", "pids", "freezer", "devices", "systemd")


@dataclass
class RealNode:
    """One node, whole."""

    plane: ControlPlane
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="kubetide-real-")))
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def cgroups(self) -> Path:
        """The controllers as a node would see them that has only these pods: the agent's --cgroup-root-dir."""
        return self.folder / "cgroup"

    def start(self) -> None:
        """Start containerd and the kubelet; the node is ready a moment later."""
        self._hold_namespace()
        self._run("containerd", [find("containerd") or "containerd", "--config", str(self._containerd_config())])
        self._wait("containerd", lambda: self._ctr("version"))
        write_images(self.folder / "images.tar")
        self._ctr("images", "import", str(self.folder / "images.tar"))
        kubelet = str(find_program("kubelet"))
        flags = ("--root-dir=/var/lib/kubelet", f"--hostname-override={NAME}", "--housekeeping-interval=1s")
        config = f"--config={self._kubelet_config()}"
        self._run("kubelet", [kubelet, config, f"--kubeconfig={self._kubeconfig()}", f"--node-ip={ADDRESS}", *flags])

    def inside(self, command: list[str]) -> list[str]:
        """Return a command that runs in the node's mount namespace."""
        return ["nsenter", f"--mount=/proc/{self.processes['namespace'].pid}/ns/mnt", *command]

    def stop(self) -> None:
        """End everything, by process id, and leave nothing behind."""
        for name in ("kubelet", "containerd"):
            if name in self.processes:
                self._end(self.processes.pop(name))
        if "namespace" in self.processes:
            holder = self.processes.pop("namespace")
            self._end_others(holder.pid)
            self._end(holder)
        remove_cgroups(TOP)
        shutil.rmtree(self.folder, ignore_errors=True)
        for place in BOUND.values():
            try:
                os.rmdir(place)  # an empty mount point only
            except OSError:
                continue

    def log_of(self, name: str) -> str:
        """Return the end of what a program has written."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]

    # ------------------------------------------------------------------ parts

    def _hold_namespace(self) -> None:
        """Start the process that keeps the mount namespace."""
        commands = ["mount --make-rprivate /", "mount --make-rshared /"]
        for name, place in BOUND.items():
            (self.folder / name).mkdir()
            Path(place).mkdir(parents=True, exist_ok=True)
            commands.append(f"mount --bind {self.folder / name} {place}")
        for setting, value in TUNABLES.items():
            file = self.folder / setting.replace("/", "-")
            file.write_text(f"{value}\n")
            commands.append(f"mount --bind {file} /proc/sys/{setting}")
        for controller in CONTROLLERS:
            top, view = CGROUPS / controller / TOP, self.cgroups / controller
            top.mkdir(exist_ok=True)
            view.mkdir(parents=True)
            if controller == "cpuset":
                for name in ("cpuset.mems", "cpuset.cpus"):
                    (top / name).write_text((top.parent / name).read_text())
            commands.append(f"mount --bind {top} {view}")
        ready = self.folder / "ready"
        script = " && ".join([*commands, f"touch {ready}", "exec sleep infinity"])
        self._start("namespace", ["unshare", "--mount", "sh", "-c", script])
        self._wait("namespace", ready.exists)

    def _containerd_config(self) -> Path:
        cri = 'plugins."io.containerd.grpc.v1.cri"'
        network = self.folder / "cni"
        network.mkdir()
        plugin = {"type": "loopback"}
        conflist = {"cniVersion": "1.0.0", "name": "none", "plugins": [plugin]}
        (network / "10-none.conflist").write_text(json.dumps(conflist))
        file = self.folder / "containerd.toml"
        file.write_text(f"""version = 2
root = "{self.folder}/root"
state = "{self.folder}/state"
[grpc]
  address = "/run/containerd/containerd.sock"
[{cri}]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [{cri}.cni]
    conf_dir = "{network}"
  [{cri}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [{cri}.containerd.runtimes.runc.options]
      BinaryName = "{find("runc")}"
      SystemdCgroup = false
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.folder}/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
""")
        return file

    def _kubelet_config(self) -> Path:
        server = issue(
            self.plane.ca,
            f"system:node:{NAME}",
            now=SystemClock().now(),
            groups=("system:nodes",),
            dns_names=[NAME],
            addresses=[ADDRESS, "127.0.0.1"],
        )
        (self.folder / "kubelet.crt").write_text(server.certificate)
        (self.folder / "kubelet.key").write_text(server.key)
        for name in ("manifests", "podlogs"):
            (self.folder / name).mkdir()
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "readOnlyPort": 0,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{TOP}",
            "failCgroupV1": False,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "resolvConf": "",
            "podLogsDir": str(self.folder / "podlogs"),
            "staticPodPath": str(self.folder / "manifests"),
            "makeIPTablesUtilChains": False,
            "enforceNodeAllocatable": ["pods"],
            "fileCheckFrequency": "2s",
            "nodeStatusUpdateFrequency": "4s",
            "tlsCertFile": str(self.folder / "kubelet.crt"),
            "tlsPrivateKeyFile": str(self.folder / "kubelet.key"),
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.plane.folder / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
        }
        file = self.folder / "kubelet.json"
        file.write_text(json.dumps(config))
        return file

    def _kubeconfig(self) -> Path:
        return self.plane.kubeconfig(f"system:node:{NAME}", ("system:nodes",))

    # -------------------------------------------------------------- processes

    def _run(self, name: str, command: list[str]) -> None:
        self._start(name, self.inside(command))

    def _start(self, name: str, command: list[str]) -> None:
        tools = [os.path.dirname(find(program) or "") for program in ("containerd", "runc")]
        path = os.pathsep.join([*tools, os.environ.get("PATH", ""), "/usr/sbin"])
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "PATH": path}
            )

    def _ctr(self, *arguments: str) -> bool:
        command = [find("ctr") or "ctr", "-n", "k8s.io", *arguments]
        return subprocess.run(self.inside(command), capture_output=True, timeout=60, check=False).returncode == 0

    def _wait(self, name: str, ready: Callable[[], object]) -> None:
        for _ in range(300):
            if self.processes[name].poll() is not None:
                raise RuntimeError(f"{name} ended: {self.log_of(name)}")
            if ready():
                return
            subprocess.run(["sleep", "0.1"], check=True)
        raise TimeoutError(f"{name} is not ready: {self.log_of(name)}")

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _end_others(self, holder: int) -> None:
        """End what is left in the node's mount namespace: shims and their containers."""
        namespace = os.readlink(f"/proc/{holder}/ns/mnt")
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and int(entry.name) != holder and os.readlink(entry / "ns/mnt") == namespace:
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue
