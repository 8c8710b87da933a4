"""`kubetide dashboard` on real sockets: every page and its JSON, who may see what, and names that mean harm."""

import asyncio
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from yarl import URL

from dashboard_world import EVERYTHING, HOSTILE, OWN, PATIENCE, account, cluster, dashboard, visitor
from embedded_server import Running
from kubetide.cli.dashboard.command import Options, served
from kubetide.cli.main import run_cli
from kubetide.clock import SystemClock
from kubetide.kube.client import kubeconfig
from kubetide.kube.client.client import Client

PAGES = ("", "workloads", "workloads/shop/Deployment/web", "nodes", "nodes/node-1", "health")


async def test_every_page_answers_as_html_and_as_json_under_a_strict_policy(tmp_path: Path) -> None:
    async with cluster() as server, dashboard(server, tmp_path) as url, visitor() as session:
        for page in PAGES:
            async with session.get(f"{url}/c/kubetide/{page}") as answer:
                text = await answer.text()
                assert answer.status == 200, (page, text)
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
            # Nothing inline, nothing from elsewhere: the policy would stop it, and it would be missed.
            assert not re.search(r"<script(?![^>]* src=)", text)
            assert " style=" not in text
            assert not re.search(r"""(?:src|href|action)=["']?(?:https?:)?//""", text)
            async with session.get(f"{url}/c/kubetide/{page}", headers={"Accept": "application/json"}) as answer:
                assert answer.content_type == "application/json"
                assert "at" in await answer.json()


async def test_texts_of_a_cluster_are_escaped_wherever_they_stand(tmp_path: Path) -> None:
    async with cluster() as server, dashboard(server, tmp_path) as url, visitor() as session:
        seen = ""
        for page in (*PAGES, "workloads/shop/Deployment/web/what-if", f"workloads?q={HOSTILE}"):
            async with session.get(f"{url}/c/kubetide/{page}") as answer:
                seen += await answer.text()
        assert "&lt;img src=x" in seen
        assert "<img" not in seen
        assert "{{7*7}}" in seen  # a text, not a template
        async with session.get(f"{url}/c/<img src=x>/") as answer:
            assert answer.status == 400
            assert "<img" not in await answer.text()


NOT_PAGES = {
    "workloads/shop/Deployment/none": 404,
    "nodes/none": 404,
    "workloads?start=x": 400,
    "workloads/shop/Deployment/web/what-if?percentile=7": 400,
    "?range=1y": 400,
}


async def test_what_is_not_there_or_not_understood_is_a_page_and_not_a_traceback(tmp_path: Path) -> None:
    async with cluster() as server, dashboard(server, tmp_path) as url, visitor() as session:
        for path, status in NOT_PAGES.items():
            async with session.get(f"{url}/c/kubetide/{path}") as answer:
                assert answer.status == status, path
                assert "Back to the overview" in await answer.text()


async def test_a_foreign_name_that_resolves_here_is_not_answered(tmp_path: Path) -> None:
    async with cluster() as server, dashboard(server, tmp_path) as url, visitor() as session:
        async with session.get(f"{url}/c/kubetide/", headers={"Host": "evil.example"}) as answer:
            assert answer.status == 421
        async with session.get(f"{url}/c/kubetide/", headers={"Host": "localhost:1234"}) as answer:
            assert answer.status == 200


async def test_an_answer_that_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    async with cluster() as server, dashboard(server, tmp_path) as url, visitor() as session:
        async with session.get(f"{url}/c/kubetide/workloads?part=rows") as answer:
            tag = answer.headers["ETag"]
        async with session.get(f"{url}/c/kubetide/workloads?part=rows", headers={"If-None-Match": tag}) as answer:
            assert answer.status == 304


async def test_a_new_look_at_the_cluster_is_told_by_an_event(tmp_path: Path) -> None:
    async with cluster() as server, dashboard(server, tmp_path) as url, visitor() as session:
        answer = await session.get(f"{url}/c/kubetide/live")
        assert answer.content_type == "text/event-stream"
        text = b""
        while text.count(b"event: look") < 2:
            text += await answer.content.readany()
        answer.close()


async def test_it_works_below_a_path_and_behind_a_proxy_that_removes_one(tmp_path: Path) -> None:
    async with cluster() as server, dashboard(server, tmp_path, prefix="/tide") as url, visitor() as session:
        base = url.removesuffix("/tide")
        for start in (f"{base}/tide", f"{base}/tide/"):
            async with session.get(start) as answer:
                assert (answer.status, answer.url.path) == (200, "/tide/c/kubetide/")
                text = await answer.text()
        sheet = re.search(r'href="([^"]+style\.css)"', text)
        assert sheet is not None
        async with session.get(answer.url.join(URL(sheet[1]))) as found:
            assert found.status == 200
        async with session.get(f"{base}/") as answer:
            assert answer.status == 404


# -- tokens


async def test_a_visitor_logs_in_with_a_token_and_out_again(tmp_path: Path) -> None:
    async with cluster() as server, dashboard(server, tmp_path, by_token=True) as url, visitor() as session:
        token = await account(server, "reader", rules=EVERYTHING)
        async with session.get(f"{url}/") as answer:
            assert answer.url.path == "/login"
        async with session.get(f"{url}/c/in-cluster/") as answer:
            assert answer.status == 401
        async with session.post(f"{url}/login", data={"token": token}, headers=OWN, allow_redirects=False) as answer:
            assert answer.status == 303
            cookie = answer.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert token not in cookie
        async with session.get(f"{url}/c/in-cluster/health") as answer:
            text = await answer.text()
            assert "system:serviceaccount:default:reader" in text
            assert "deployments.apps" in text
        async with session.post(f"{url}/logout", headers=OWN) as answer:
            assert answer.url.path == "/login"
        async with session.get(f"{url}/c/in-cluster/", headers={"Accept": "application/json"}) as answer:
            assert answer.status == 401


async def test_a_visitor_sees_what_the_token_may_see_and_nothing_else(tmp_path: Path) -> None:
    rules = [{"apiGroups": ["", "apps"], "resources": ["pods", "deployments"], "verbs": ["list"]}]
    async with cluster() as server, dashboard(server, tmp_path, by_token=True) as url, visitor() as session:
        token = await account(server, "shopper", rules=rules, namespace="shop")
        await session.post(f"{url}/login", data={"token": token, "namespace": "shop"}, headers=OWN)
        async with session.get(f"{url}/c/in-cluster/workloads?format=json") as answer:
            rows = (await answer.json())["workloads"]["rows"]
        assert [(row["namespace"], row["name"]) for row in rows] == [("shop", "web")]
        assert rows[0]["verdict"]["tone"] != "good"  # autoscalers cannot be read, so it is not known to be fine
        async with session.get(f"{url}/c/in-cluster/nodes") as answer:
            assert "node-1" not in await answer.text()
        async with session.get(f"{url}/c/in-cluster/workloads/other/Deployment/web") as answer:
            assert answer.status == 404


async def test_an_expired_token_is_a_page_with_a_way_out(tmp_path: Path) -> None:
    async with cluster() as server, dashboard(server, tmp_path, by_token=True) as url, visitor() as session:
        token = await account(server, "short", rules=EVERYTHING)
        await session.post(f"{url}/login", data={"token": token}, headers=OWN)
        client = Client(server.transport(), clock=SystemClock())
        await client.request("DELETE", "/api/v1/namespaces/default/serviceaccounts/short")
        await client.close()
        status, text = 200, ""
        async with asyncio.timeout(PATIENCE):
            while status != 401:
                async with session.get(f"{url}/c/in-cluster/") as answer:
                    status, text = answer.status, await answer.text()
                await asyncio.sleep(0.05)
        assert "Your session is over" in text
        assert 'name="token"' in text


LOGINS: list[tuple[dict[str, str], int]] = [
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403),
    ({"Origin": "https://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    (OWN, 401),  # its own page: the token is wrong, no more
]


async def test_another_site_can_neither_log_in_nor_out(tmp_path: Path) -> None:
    async with cluster() as server, dashboard(server, tmp_path, by_token=True) as url, visitor() as session:
        for headers, status in LOGINS:
            async with session.post(f"{url}/login", data={"token": "wrong"}, headers=headers) as answer:
                assert answer.status == status, headers


@asynccontextmanager
async def in_a_pod(server: Running, folder: Path, patch: pytest.MonkeyPatch, **more: Any) -> AsyncIterator[str]:
    """Serve as a Deployment does: no kubeconfig, but the files of a service account that may do nothing at all."""
    account_files = folder / "serviceaccount"
    account_files.mkdir()
    (account_files / "token").write_text(await account(server, "kubetide-dashboard", rules=[]))
    (account_files / "ca.crt").write_text(server.identity.ca.certificate)
    (account_files / "namespace").write_text("kube-system")
    where = URL(server.serving.url)
    patch.setenv("KUBERNETES_SERVICE_HOST", str(where.host))
    patch.setenv("KUBERNETES_SERVICE_PORT", str(where.port))
    patch.setenv("HOME", str(folder))
    patch.delenv("KUBECONFIG", raising=False)
    patch.setattr(kubeconfig, "in_cluster", partial(kubeconfig.in_cluster, folder=account_files))
    options = Options(port=0, by_token=True, interval=timedelta(milliseconds=200), **more)
    async with asyncio.timeout(PATIENCE), served(options) as url:
        yield url.rstrip("/")


async def until(session: aiohttp.ClientSession, url: str, reached: Callable[[Any], bool]) -> Any:
    """Wait until a page as JSON is as it should be."""
    while True:
        async with session.get(f"{url}?format=json") as answer:
            page = await answer.json()
            if answer.status == 200 and reached(page):
                return page
        await asyncio.sleep(0.1)


async def test_in_a_pod_everybody_sees_their_own_cluster_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    async with (
        cluster() as server,
        in_a_pod(server, tmp_path, monkeypatch, prefix="/tide") as url,
        visitor() as first,
        visitor(**{"X-Forwarded-Proto": "https", "Host": "tide.example.com"}) as second,
    ):
        async with first.get(f"{url}/c/in-cluster/workloads?format=json") as answer:
            assert answer.status == 401  # the service account lends its permissions to nobody
        everything = await account(server, "reader", rules=watched)
        await first.post(f"{url}/login", data={"token": everything}, headers=OWN)
        mine = await account(server, "shopper", rules=watched, namespace="shop")
        form = {"token": mine, "namespace": "shop"}
        async with second.post(f"{url}/login", data=form, headers=OWN, allow_redirects=False) as answer:
            cookie = answer.headers["Set-Cookie"]
            assert "Secure" in cookie
            assert "Path=/tide/" in cookie
        pages = f"{url}/c/in-cluster/workloads"
        page = await until(first, pages, lambda page: page["workloads"]["total"] == 2)
        secured = {"Cookie": cookie.partition(";")[0]}
        async with second.get(f"{pages}?format=json", headers=secured) as answer:
            rows = (await answer.json())["workloads"]["rows"]
        assert [row["namespace"] for row in rows] == ["shop"]
        client = Client(server.transport(), clock=SystemClock())
        patch = msgspec.json.encode({"spec": {"replicas": 4}})
        path = "/apis/apps/v1/namespaces/shop/deployments/web"
        await client.request("PATCH", path, body=patch, content_type="application/merge-patch+json")
        await client.close()
        page = await until(first, pages, lambda page: 4 in [row["pods"] for row in page["workloads"]["rows"]])
        assert {row["pods"] for row in page["workloads"]["rows"]} == {1, 4}


def test_a_kubeconfig_is_not_shown_to_other_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["dashboard", "--host", "0.0.0.0"]) == 2
    assert "--auth token" in capsys.readouterr().err


async def test_top_prints_the_same_rows_once(tmp_path: Path) -> None:
    async with cluster() as server:
        file = tmp_path / "config"
        file.write_text(server.identity.kubeconfig(server.serving.url))
        file.chmod(0o600)
        found = {}
        for form in ("json", "text"):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kubetide", "--kubeconfig", str(file), "top", "--once", "-o", form),
                stdout=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(PATIENCE):
                found[form], _ = await process.communicate()
            assert process.returncode == 0
        rows = msgspec.json.decode(found["json"])["workloads"]
        assert {(row["namespace"], row["name"]) for row in rows} == {("shop", "web"), ("other", "web")}
        assert b"shop/web" in found["text"]


async def test_top_obeys_the_keys_of_a_terminal_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    async with cluster() as server, asyncio.timeout(2 * PATIENCE):
        file = tmp_path / "config"
        file.write_text(server.identity.kubeconfig(server.serving.url))
        file.chmod(0o600)
        ours, theirs = pty.openpty()
        try:
            size(ours, 24, 80)
            before = termios.tcgetattr(theirs)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kubetide", "--kubeconfig", str(file), "top", "--interval", "1s"),
                stdin=theirs,
                stdout=theirs,
                # As from a shell: make exports the size of its own terminal, which would hold for good.
                env={name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
                | {"TERM": "xterm"},
                preexec_fn=partial(take_terminal, theirs),
            )
            screen = Screen(ours)
            await screen.shows("other/web", "shop/web", "Enter explain")
            for keys, texts in (
                ("j", ("\u25b6 shop/web",)),
                ("/shop", ("/shop", "Enter keeps it")),
                ("\r", ("1 of 2 workloads",)),
                ("\r", ("explanation of shop/web", "Esc back")),
                ("p", ("plot of shop/web",)),
                ("e", ("events of shop/web",)),
                ("n", ("node-1", "DOWN")),
                ("\x1b", ("shop/web", "Enter explain")),
                ("c", ("by cpu",)),
            ):
                os.write(ours, keys.encode())
                await screen.shows(*texts)
            size(ours, 30, 150)
            process.send_signal(signal.SIGWINCH)
            await screen.shows("memory used")
            os.write(ours, b"q")
            assert await process.wait() == 0
            assert termios.tcgetattr(theirs) == before
        finally:
            os.close(theirs)
            os.close(ours)


def size(terminal: int, lines: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def take_terminal(terminal: int) -> None:
    """Make a terminal that of a new session, as a terminal emulator does."""
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


class Screen:
    """What was written to a terminal since the last key; control sequences are left out."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal

    async def shows(self, *texts: str) -> None:
        """Wait until all of them were drawn."""
        seen = ""
        while not all(text in seen for text in texts):
            seen += re.sub(
                r"\x1b\[[0-9;?]*[A-Za-z]", "", (await asyncio.to_thread(self._read)).decode(errors="replace")
            )

    def _read(self) -> bytes:
        ready, _, _ = select.select([self._terminal], [], [], 0.2)
        return os.read(self._terminal, 65536) if ready else b""
