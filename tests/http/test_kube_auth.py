"""The auth matrix: what a server is shown, and what it is shown after the credential changed.

Every case makes two requests over TLS with a change in between: a rotated file, an expired exec credential, a
refusal. The server records what came.
"""

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from faulty_api import FaultyApi, FaultyTransport
from faulty_server import FaultyServer, Visit
from kubetide.clock import SystemClock
from kubetide.kube.client.certificates import KeyPair, issue, make_ca
from kubetide.kube.client.errors import CredentialsFailed, UntrustedServer
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access, from_files, in_cluster

NOW = SystemClock().now()
CA = make_ca("kubetide-test-ca", now=NOW)
OTHER_CA = make_ca("somebody-else", now=NOW)
SERVER = issue(CA, "kube-apiserver", now=NOW, addresses=["127.0.0.1"], dns_names=["api.internal"])
EXEC_VERSION = "client.authentication.k8s.io/v1"
PATH = "/api/v1/nodes"


class TestClock:
    """The machine's clock, and as many hours ahead as a test wants."""

    __test__ = False

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def monotonic(self) -> float:
        return SystemClock().monotonic()


def encoded(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[FaultyServer]:
    transport = FaultyTransport(FaultyApi())
    async with FaultyServer(transport, identity=SERVER, client_ca=CA.certificate, **options) as server:
        yield server


@asynccontextmanager
async def connected(access: Access) -> AsyncIterator[HttpTransport]:
    transport = HttpTransport(access)
    try:
        yield transport
    finally:
        await transport.close()
        await asyncio.sleep(0.01)  # lets TLS connections say goodbye


def config(
    folder: Path,
    server: FaultyServer,
    user: dict[str, Any],
    clock: TestClock | None = None,
    cluster: dict[str, Any] | None = None,
) -> Access:
    raw = {
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": server.url,
                    "certificate-authority-data": encoded(CA.certificate),
                    **(cluster or {}),
                },
            }
        ],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(raw))
    return from_files([file], clock=clock or TestClock())


def plugin(folder: Path, *answers: dict[str, Any], version: str = EXEC_VERSION) -> dict[str, Any]:
    """Return the declaration of a program that gives one answer after the other, the last one for ever."""
    for number, status in enumerate(answers):
        body = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        (folder / f"answer-{number}.json").write_text(json.dumps(body))
    program = folder / "plugin.py"
    program.write_text(
        "import os, pathlib, sys\n"
        "folder = pathlib.Path(__file__).parent\n"
        "count = folder / 'count'\n"
        "number = int(count.read_text()) if count.exists() else 0\n"
        "count.write_text(str(number + 1))\n"
        "(folder / 'info.json').write_text(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"sys.stdout.write((folder / f'answer-{{min(number, {len(answers) - 1})}}.json').read_text())\n"
    )
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": [str(program)]}}


def runs(folder: Path) -> int:
    return int((folder / "count").read_text())


def tokens(server: FaultyServer) -> list[str]:
    return [visit.authorization.removeprefix("Bearer ") for visit in server.visits]


async def test_a_static_token_is_shown_every_time(tmp_path: Path) -> None:
    async with serving() as server, connected(config(tmp_path, server, {"token": "one"})) as transport:
        for _ in range(2):
            assert (await transport.request("GET", PATH)).status == 200
        assert tokens(server) == ["one", "one"]


async def test_a_user_name_and_password_are_shown(tmp_path: Path) -> None:
    user = {"username": "ann", "password": "secret"}
    async with serving() as server, connected(config(tmp_path, server, user)) as transport:
        await transport.request("GET", PATH)
        assert server.visits[0].authorization == "Basic YW5uOnNlY3JldA=="


async def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    pair = issue(CA, "ann", now=NOW, groups=["dev"], client=True)
    user = {"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)}
    async with serving() as server, connected(config(tmp_path, server, user)) as transport:
        await transport.request("GET", PATH)
        assert server.visits[0].common_name == "ann"


async def test_client_certificate_files_that_are_replaced_are_shown_from_then_on(tmp_path: Path) -> None:
    def put(name: str) -> None:
        pair = issue(CA, name, now=NOW, client=True)
        replace(tmp_path / "tls.crt", pair.certificate)
        replace(tmp_path / "tls.key", pair.key)

    put("first")
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    async with serving() as server, connected(config(tmp_path, server, user)) as transport:
        await transport.request("GET", PATH)
        put("second")
        await transport.request("GET", PATH)
        assert [visit.common_name for visit in server.visits] == ["first", "second"]


async def test_a_token_file_that_is_rotated_is_shown_from_then_on(tmp_path: Path) -> None:
    replace(tmp_path / "token", "first\n")
    async with serving() as server, connected(config(tmp_path, server, {"tokenFile": "token"})) as transport:
        await transport.request("GET", PATH)
        replace(tmp_path / "token", "second\n")
        await transport.request("GET", PATH)
        assert tokens(server) == ["first", "second"]


async def test_a_token_file_rewritten_within_the_same_instant_is_noticed_after_a_401(tmp_path: Path) -> None:
    file = tmp_path / "token"
    replace(file, "first")
    instant = file.stat()
    async with (
        serving(admit=lambda visit: visit.authorization.endswith("again")) as server,
        connected(config(tmp_path, server, {"tokenFile": "token"})) as transport,
    ):
        assert (await transport.request("GET", PATH)).status == 401
        file.write_text("again")  # same size, same inode
        os.utime(file, ns=(instant.st_atime_ns, instant.st_mtime_ns))
        assert (await transport.request("GET", PATH)).status == 200
        assert tokens(server) == ["first", "first", "again"]


async def test_the_service_account_token_of_a_pod_is_followed_through_its_symlinks(tmp_path: Path) -> None:
    def project(token: str) -> None:
        folder = tmp_path / f"..{token}"
        folder.mkdir()
        (folder / "token").write_text(token)
        (folder / "ca.crt").write_text(CA.certificate)
        link = tmp_path / "..data_tmp"
        link.symlink_to(folder.name)
        link.rename(tmp_path / "..data")

    project("first")
    for name in ("token", "ca.crt"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    async with serving() as server:
        environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
        async with connected(in_cluster(environment=environment, folder=tmp_path)) as transport:
            await transport.request("GET", PATH)
            project("second")
            await transport.request("GET", PATH)
            assert tokens(server) == ["first", "second"]


@pytest.mark.parametrize("version", [EXEC_VERSION, "client.authentication.k8s.io/v1beta1"])
async def test_an_exec_plugin_gives_a_token_and_is_run_once(tmp_path: Path, version: str) -> None:
    user = plugin(tmp_path, {"token": "from-plugin"}, version=version)
    async with serving() as server, connected(config(tmp_path, server, user)) as transport:
        await asyncio.gather(*[transport.request("GET", PATH) for _ in range(10)])
        assert set(tokens(server)) == {"from-plugin"}
        assert runs(tmp_path) == 1


async def test_an_exec_plugin_is_run_again_before_its_token_expires(tmp_path: Path) -> None:
    clock = TestClock()
    soon = (clock.now() + timedelta(hours=1)).isoformat()
    user = plugin(tmp_path, {"token": "first", "expirationTimestamp": soon}, {"token": "second"})
    async with serving() as server, connected(config(tmp_path, server, user, clock)) as transport:
        await transport.request("GET", PATH)
        clock.ahead = timedelta(minutes=59, seconds=55)
        await transport.request("GET", PATH)
        assert tokens(server) == ["first", "second"]


async def test_an_exec_plugin_is_run_again_after_a_401_and_only_once(tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "revoked"}, {"token": "fresh"})

    def admit(visit: Visit) -> bool:
        return visit.authorization == "Bearer fresh"

    async with serving(admit=admit) as server, connected(config(tmp_path, server, user)) as transport:
        answers = await asyncio.gather(*[transport.request("GET", PATH) for _ in range(10)])
        assert [answer.status for answer in answers] == [200] * 10
        assert runs(tmp_path) == 2


async def test_a_401_that_nothing_can_mend_is_returned(tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "never"})
    async with serving(admit=lambda _: False) as server, connected(config(tmp_path, server, user)) as transport:
        assert (await transport.request("GET", PATH)).status == 401
        assert len(server.visits) == 2


async def test_a_watch_renews_its_credentials_too(tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "revoked"}, {"token": "fresh"})

    def admit(visit: Visit) -> bool:
        return visit.authorization == "Bearer fresh"

    async with serving(admit=admit) as server, connected(config(tmp_path, server, user)) as transport:
        async with transport.watch(PATH, query={"watch": "true", "timeoutSeconds": "1"}) as lines:
            assert [line async for line in lines] == []
        assert tokens(server) == ["revoked", "fresh"]


async def test_an_exec_plugin_gives_a_client_certificate_and_another_when_it_expires(tmp_path: Path) -> None:
    def status(name: str, expires: datetime) -> dict[str, Any]:
        pair: KeyPair = issue(CA, name, now=NOW, client=True)
        return {
            "clientCertificateData": pair.certificate,
            "clientKeyData": pair.key,
            "expirationTimestamp": expires.isoformat(),
        }

    clock = TestClock()
    user = plugin(
        tmp_path,
        status("first", clock.now() + timedelta(hours=1)),
        status("second", clock.now() + timedelta(hours=9)),
    )
    async with serving() as server, connected(config(tmp_path, server, user, clock)) as transport:
        await transport.request("GET", PATH)
        clock.ahead = timedelta(hours=2)
        await transport.request("GET", PATH)
        assert [visit.common_name for visit in server.visits] == ["first", "second"]


async def test_an_exec_plugin_is_told_about_the_cluster_where_it_asks(tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "t"})
    user["exec"]["provideClusterInfo"] = True
    async with serving() as server, connected(config(tmp_path, server, user)) as transport:
        await transport.request("GET", PATH)
        info = json.loads((tmp_path / "info.json").read_text())
        assert info["kind"] == "ExecCredential"
        assert info["spec"]["interactive"] is False
        assert info["spec"]["cluster"]["server"] == server.url


@pytest.mark.parametrize(
    ("user", "message"),
    [
        pytest.param(
            {"exec": {"apiVersion": EXEC_VERSION, "command": "no-such-program", "installHint": "try apt"}},
            "try apt",
            id="missing-with-its-hint",
        ),
        pytest.param(
            {"exec": {"apiVersion": EXEC_VERSION, "command": "sh", "args": ["-c", "echo oops >&2; exit 3"]}},
            "failed with 3: oops",
            id="failing",
        ),
        pytest.param({"exec": {"apiVersion": EXEC_VERSION, "command": "echo", "args": ["hi"]}}, "echo", id="no-json"),
        pytest.param(
            {"exec": {"apiVersion": EXEC_VERSION, "command": "echo", "args": ['{"kind":"ExecCredential"}']}},
            "expected",
            id="other-version",
        ),
        pytest.param({"tokenFile": "nowhere"}, "cannot read", id="no-token-file"),
    ],
)
async def test_credentials_that_cannot_be_had_are_named(tmp_path: Path, user: dict[str, Any], message: str) -> None:
    async with serving() as server, connected(config(tmp_path, server, user)) as transport:
        with pytest.raises(CredentialsFailed, match=message):
            await transport.request("GET", PATH)
        assert server.visits == []


async def test_a_server_signed_by_somebody_else_is_not_talked_to(tmp_path: Path) -> None:
    async with serving() as server:
        wrong = {"certificate-authority-data": encoded(OTHER_CA.certificate)}
        async with connected(config(tmp_path, server, {"token": "secret"}, cluster=wrong)) as transport:
            with pytest.raises(UntrustedServer, match="certificate"):
                await transport.request("GET", PATH)
            with pytest.raises(UntrustedServer):
                async with transport.watch(PATH, query={"watch": "true"}):
                    pass
        assert server.visits == []


async def test_a_server_may_be_trusted_blindly(tmp_path: Path) -> None:
    async with serving() as server:
        blind = {"certificate-authority-data": "", "insecure-skip-tls-verify": True}
        async with connected(config(tmp_path, server, {"token": "t"}, cluster=blind)) as transport:
            assert (await transport.request("GET", PATH)).status == 200


async def test_the_name_in_the_certificate_may_be_another_than_in_the_address(tmp_path: Path) -> None:
    async with serving() as server:
        named = {"tls-server-name": "api.internal"}
        async with connected(config(tmp_path, server, {"token": "t"}, cluster=named)) as transport:
            assert (await transport.request("GET", PATH)).status == 200
        wrong = {"tls-server-name": "other.internal"}
        async with connected(config(tmp_path, server, {"token": "t"}, cluster=wrong)) as transport:
            with pytest.raises(UntrustedServer):
                await transport.request("GET", PATH)


async def test_a_ca_file_that_is_replaced_is_used_from_then_on(tmp_path: Path) -> None:
    replace(tmp_path / "ca.crt", OTHER_CA.certificate)
    async with serving() as server:
        by_file = {"certificate-authority-data": "", "certificate-authority": "ca.crt"}
        async with connected(config(tmp_path, server, {"token": "t"}, cluster=by_file)) as transport:
            with pytest.raises(UntrustedServer):
                await transport.request("GET", PATH)
            replace(tmp_path / "ca.crt", CA.certificate)
            assert (await transport.request("GET", PATH)).status == 200


async def test_requests_go_through_a_proxy(tmp_path: Path) -> None:
    asked: list[bytes] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b"\r\n")[0])
        host, port = head.split()[1].decode().split(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as group:
            group.create_task(pump(reader, far_writer))
            group.create_task(pump(far_reader, writer))

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    async with proxy, serving() as server:
        through = {"proxy-url": f"http://127.0.0.1:{port}"}
        async with connected(config(tmp_path, server, {"token": "t"}, cluster=through)) as transport:
            assert (await transport.request("GET", PATH)).status == 200
        assert asked == [f"CONNECT 127.0.0.1:{server.port} HTTP/1.1".encode()]


def replace(path: Path, text: str) -> None:
    """Write a file the way tools that rotate do: a new one, moved into place."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)
