"""A real etcd and kube-apiserver on loopback, with certificates of their own, for tests.

The binaries are found in KUBEBUILDER_ASSETS (the convention of Kubernetes' own test environments) or in
`~/.cache/kubetide/envtest`; etcd also on the PATH. Nothing is downloaded. Every identity is a client certificate
signed by the CA of this control plane, so a test can be anybody. Processes are stopped by their id, and on Linux they
also end with the thread that started them: start them from the main one.
"""

import asyncio
import base64
import ctypes
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kubetide.clock import SystemClock
from kubetide.errors import KubetideError, Unavailable
from kubetide.kube.client.certificates import KeyPair, issue, make_ca
from kubetide.kube.client.client import Client
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files

CACHE = Path.home() / ".cache" / "kubetide" / "envtest"
START_SECONDS = 300.0
STOP_SECONDS = 5.0


class BinariesMissing(KubetideError):
    """Something to run is not on this machine; the message says what and where to put it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """Where the programs are."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path | None = None


def find_program(name: str) -> Path | None:
    """Return where a program of another project is that tests may use, if it is there."""
    for folder in (os.environ.get("KUBEBUILDER_ASSETS", ""), CACHE):
        if folder and os.access(Path(folder) / name, os.X_OK):
            return Path(folder) / name
    return None


def find_binaries() -> Binaries:
    """Return where the programs are, or say what is missing."""
    on_path = shutil.which("etcd")
    etcd = find_program("etcd") or (Path(on_path) if on_path else None)
    apiserver = find_program("kube-apiserver")
    if etcd is None or apiserver is None:
        missing = " and ".join(name for name, found in (("etcd", etcd), ("kube-apiserver", apiserver)) if found is None)
        raise BinariesMissing(f"no {missing}: put the binaries into KUBEBUILDER_ASSETS or ~/.cache/kubetide/envtest")
    return Binaries(
        etcd=etcd, kube_apiserver=apiserver, kube_controller_manager=find_program("kube-controller-manager")
    )


class ControlPlane:
    """One control plane in one folder."""

    def __init__(self, binaries: Binaries, folder: Path) -> None:
        now = SystemClock().now()
        self.folder = folder
        self.token = secrets.token_hex(16)
        """A bearer token of a user in the group system:masters."""
        self.ca = make_ca("kubetide-test-ca", now=now)
        self.port, self._etcd_port, self._peer_port = _free_ports(3)
        self._binaries = binaries
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[IO[bytes]] = []
        self._front_ca = make_ca("kubetide-test-front-ca", now=now)
        self._prepare(now)

    @property
    def url(self) -> str:
        """The address of the API server."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def etcd_url(self) -> str:
        """The address of etcd."""
        return f"http://127.0.0.1:{self._etcd_port}"

    def start(self, *, controller_manager: bool = False, extra: Sequence[str] = ()) -> None:
        """Start etcd, the API server and perhaps the controller manager, and wait until they are ready."""
        self.start_etcd()
        self.start_api_server(extra=extra)
        if controller_manager:
            self.start_controller_manager()

    def start_etcd(self) -> None:
        """Start etcd and wait until it is healthy."""
        client, peer = self.etcd_url, f"http://127.0.0.1:{self._peer_port}"
        flags = {
            "data-dir": self._file("etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "log-level": "warn",
            "unsafe-no-fsync": "true",
        }
        self._run("etcd", [str(self._binaries.etcd), *_flags(flags)])
        self._wait("etcd", lambda: _answers(f"{client}/health", None))

    def start_api_server(self, *, extra: Sequence[str] = ()) -> None:
        """Start the API server and wait until it is ready."""
        self._run("kube-apiserver", [str(self._binaries.kube_apiserver), *_flags(self._api_server_flags()), *extra])
        context = self._client_context("admin", ("system:masters",))
        self._wait("kube-apiserver", lambda: _answers(f"{self.url}/readyz", context))

    def start_controller_manager(self, *, extra: Sequence[str] = ()) -> None:
        """Start the controller manager and wait until it is healthy."""
        program = self._binaries.kube_controller_manager
        if program is None:
            raise BinariesMissing("no kube-controller-manager: put it beside kube-apiserver")
        config = str(self.kubeconfig("system:kube-controller-manager"))
        (port,) = _free_ports(1)
        flags = {
            "kubeconfig": config,
            "authentication-kubeconfig": config,
            "authorization-kubeconfig": config,
            "bind-address": "127.0.0.1",
            "secure-port": str(port),
            "leader-elect": "false",
            "use-service-account-credentials": "true",
            "root-ca-file": self._file("ca.crt"),
            "service-account-private-key-file": self._file("sa.key"),
            "kube-api-qps": "500",
            "kube-api-burst": "500",
        }
        self._run("kube-controller-manager", [str(program), *_flags(flags), *extra])
        blind = ssl.create_default_context()
        blind.check_hostname = False
        blind.verify_mode = ssl.CERT_NONE
        self._wait("kube-controller-manager", lambda: _answers(f"https://127.0.0.1:{port}/healthz", blind))

    def start_scheduler(self) -> None:
        """Start the scheduler; pods are bound from a moment later on."""
        program = find_program("kube-scheduler")
        if program is None:
            raise BinariesMissing("no kube-scheduler: put it beside kube-apiserver")
        config = str(self.kubeconfig("system:kube-scheduler"))
        (port,) = _free_ports(1)
        flags = {"kubeconfig": config, "bind-address": "127.0.0.1", "secure-port": str(port), "leader-elect": "false"}
        self._run("kube-scheduler", [str(program), *_flags(flags)])

    def stop(self) -> None:
        """Stop everything, in reverse."""
        for name in reversed(list(self._processes)):
            self.stop_one(name)
        for log in self._logs:
            log.close()
        self._logs.clear()

    def stop_one(self, name: str, *, at_once: bool = False) -> None:
        """Stop one process, politely unless `at_once`."""
        process = self._processes.pop(name)
        if at_once:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def identity(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Return a client certificate of any user in any groups."""
        return issue(self.ca, user, now=SystemClock().now(), groups=groups, client=True)

    def kubeconfig(self, user: str = "admin", groups: Sequence[str] = ()) -> Path:
        """Write a kubeconfig of that user and return its path. The user `admin` may do everything."""
        pair = self.identity(user, groups or (("system:masters",) if user == "admin" else ()))
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": self.url, "certificate-authority-data": _encoded(self.ca.certificate)},
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": _encoded(pair.certificate),
                        "client-key-data": _encoded(pair.key),
                    },
                }
            ],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        }
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        path.touch(mode=0o600)
        path.write_bytes(msgspec.json.encode(body))
        return path

    def compact(self) -> None:
        """Let etcd forget its history up to now, so that old resource versions and continue tokens expire."""
        revision = self._etcd("/v3/kv/range", {"key": base64.b64encode(b"/").decode()})["header"]["revision"]
        self._etcd("/v3/kv/compaction", {"revision": revision, "physical": True})

    def log_of(self, name: str) -> str:
        """Return what a process has written."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _etcd(self, path: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(self.etcd_url + path, data=msgspec.json.encode(body))
        with urllib.request.urlopen(request, timeout=10) as answer:
            return msgspec.json.decode(answer.read(), type=dict[str, dict[str, str]], strict=False)

    def _prepare(self, now: datetime) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "etcd").mkdir(mode=0o700, exist_ok=True)
        server = issue(
            self.ca,
            "kube-apiserver",
            now=now,
            dns_names=["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"],
            addresses=["127.0.0.1", "10.96.0.1"],
        )
        front = issue(self._front_ca, "front-proxy-client", now=now, client=True)
        account = ec.generate_private_key(ec.SECP256R1())
        form = serialization.PrivateFormat.TraditionalOpenSSL
        files = {
            "ca.crt": self.ca.certificate,
            "apiserver.crt": server.certificate,
            "apiserver.key": server.key,
            "front-ca.crt": self._front_ca.certificate,
            "front.crt": front.certificate,
            "front.key": front.key,
            "sa.key": account.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode(),
            "sa.pub": account.public_key()
            .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
            .decode(),
            "tokens.csv": f'{self.token},token-user,token-user,"system:masters"\n',
        }
        for name, text in files.items():
            path = self.folder / name
            path.touch(mode=0o600)
            path.write_text(text)

    def _api_server_flags(self) -> dict[str, str]:
        return {
            "etcd-servers": self.etcd_url,
            "bind-address": "127.0.0.1",
            "secure-port": str(self.port),
            # A loopback address may not be written to an Endpoints object, hence no reconciler.
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",
            "tls-cert-file": self._file("apiserver.crt"),
            "tls-private-key-file": self._file("apiserver.key"),
            "client-ca-file": self._file("ca.crt"),
            "token-auth-file": self._file("tokens.csv"),
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self._file("sa.pub"),
            "service-account-signing-key-file": self._file("sa.key"),
            "service-cluster-ip-range": "10.96.0.0/16",
            "authorization-mode": "Node,RBAC",
            "allow-privileged": "true",
            # Pods can be made without the controller that makes service accounts.
            "disable-admission-plugins": "ServiceAccount",
            "requestheader-client-ca-file": self._file("front-ca.crt"),
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-username-headers": "X-Remote-User",
            "proxy-client-cert-file": self._file("front.crt"),
            "proxy-client-key-file": self._file("front.key"),
            "profiling": "false",
        }

    def _file(self, name: str) -> str:
        return str(self.folder / name)

    def _client_context(self, user: str, groups: Sequence[str]) -> ssl.SSLContext:
        pair = self.identity(user, groups)
        context = ssl.create_default_context(cadata=self.ca.certificate)
        chain = self.folder / "probe.pem"
        chain.touch(mode=0o600)
        chain.write_text(pair.certificate + pair.key)
        context.load_cert_chain(chain)
        return context

    def _run(self, name: str, command: list[str]) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        self._logs.append(log)
        self._processes[name] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, preexec_fn=_die_with_parent
        )

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(int(START_SECONDS / 0.1)):
            if self._processes[name].poll() is not None:
                raise Unavailable(f"{name} ended: {self.log_of(name)[-2000:]}")
            if ready():
                return
            pause.wait(0.1)
        raise Unavailable(f"{name} is not ready after {START_SECONDS:g} s: {self.log_of(name)[-2000:]}")


@contextmanager
def running(folder: Path, *, controller_manager: bool = False, extra: Sequence[str] = ()) -> Iterator[ControlPlane]:
    """Run a control plane for as long as the block lasts; raises BinariesMissing where there is nothing to run.

    `extra` are flags of the API server.
    """
    plane = ControlPlane(find_binaries(), folder)
    try:
        plane.start(controller_manager=controller_manager, extra=extra)
        yield plane
    finally:
        plane.stop()


def _answers(url: str, context: ssl.SSLContext | None) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _flags(values: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _die_with_parent() -> None:
    if sys.platform == "linux":
        set_parent_death_signal = 1
        # At once: a kube-apiserver that is asked to end waits for ever for an etcd that has ended before it.
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


@asynccontextmanager
async def connected(plane: ControlPlane, user: str) -> AsyncIterator[Client]:
    """Be a client of the control plane under a user's name while the block lasts."""
    clock = SystemClock()
    client = Client(HttpTransport(from_files([plane.kubeconfig(user)], clock=clock)), clock=clock)
    try:
        yield client
    finally:
        await client.close()
        # Connections under TLS say goodbye in the turns after this one.
        await asyncio.sleep(0.01)
