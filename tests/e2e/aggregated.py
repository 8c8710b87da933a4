"""`kubetide run metrics` behind the aggregation layer of a real API server, with just the permissions of its manifests.

Loopback addresses are refused in Endpoints, so its Service is of type ExternalName and leads to this machine.
"""

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from e2e.controlplane import ControlPlane
from e2e.programs import KUBETIDE, program
from kubetide.install.objects import manifests


def kubectl(config: Path, *words: str, given: str = "") -> str:
    """Run kubectl and return what it prints, errors too."""
    command = ["kubectl", f"--kubeconfig={config}", *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


def install(admin: Path, port: int) -> None:
    """Apply what the metrics server and the agents need but their workloads; its Service leads to this machine."""
    objects = manifests(("metrics", "node"), namespace="kube-system", image="x", with_crds=False)
    kept = [one for one in objects if one["kind"] not in ("Deployment", "DaemonSet")]
    for one in kept:
        if one["kind"] == "Service":
            one["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        if one["kind"] == "APIService":
            one["spec"]["service"]["port"] = port
    answer = kubectl(admin, "apply", "--server-side", "-f", "-", given=yaml.safe_dump_all(kept))
    if "error" in answer.lower():
        raise RuntimeError(f"the manifests of the metrics server were refused: {answer}")


def as_account(plane: ControlPlane, admin: Path, folder: Path, account: str) -> Path:
    """Return a kubeconfig of a service account."""
    token = kubectl(admin, "create", "token", account, "-n", "kube-system").strip()
    config = yaml.safe_load(plane.kubeconfig("admin").read_text())
    config["users"] = [{"name": "account", "user": {"token": token}}]
    config["contexts"][0]["context"]["user"] = "account"
    path = folder / f"{account}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def serving(
    plane: ControlPlane, folder: Path, port: int, *, resolution: str = "1s", extra: Sequence[str] = ()
) -> Iterator[tuple[Path, "subprocess.Popen[str]"]]:
    """Run the metrics server while the block lasts; gives its log and its process."""
    admin = plane.kubeconfig()
    install(admin, port)
    config, log = as_account(plane, admin, folder, "kubetide-metrics"), folder / "metrics.log"
    flags = ("--bind-address=127.0.0.1", f"--secure-port={port}", f"--metric-resolution={resolution}", *extra)
    with program(log, *KUBETIDE, "run", "metrics", f"--kubeconfig={config}", "--listen=127.0.0.1:0", *flags) as process:
        yield log, process


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
