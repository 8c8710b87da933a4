"""The agent over HTTP: the audit log page by page, and the status table."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from kubetide.cli.main import Invocation
from kubetide.cli.node.command import complete, drop_ignored
from kubetide.cli.node.status import fetch, table
from kubetide.cli.places import Place
from kubetide.errors import Unavailable
from kubetide.node.endpoints import NodeEndpoints
from kubetide.node.executor.audit_log import Audit
from kubetide.node.host.worker import Inline
from kubetide.node.settings import NodeSettings
from kubetide.node.state.audit_writer import AuditWriter
from kubetide.telemetry import Telemetry
from unit.node.memory_host import ManualClock

STATUS: dict[str, Any] = {
    "node": "here",
    "at": "2026-01-01T00:00:00+00:00",
    "cpuCores": 1.5,
    "memoryBytes": 2.0 * 2**30,
    "systemCpuCores": 0.1,
    "systemMemoryBytes": None,
    "predicted": None,
    "pods": [
        {
            "namespace": "shop",
            "name": "web",
            "qos": "LS",
            "priority": "koord-prod",
            "phase": "Running",
            "cpuCores": 0.25,
            "cpuLimitMillis": 500,
            "memoryBytes": 64.0 * 2**20,
            "memoryLimitBytes": None,
            "throttled": 0.125,
            "pressure": {"cpu": 3.0, "mem": None, "io": 0.0},
            "predicted": {"cpuMillis": 300, "memoryBytes": 80 * 2**20},
        },
        {
            "namespace": "batch",
            "name": "job",
            "qos": "BE",
            "priority": "koord-batch",
            "phase": "Pending",
            "cpuCores": None,
            "cpuLimitMillis": None,
            "memoryBytes": None,
            "memoryLimitBytes": None,
            "throttled": None,
            "pressure": {"cpu": None, "mem": None, "io": None},
            "predicted": None,
        },
    ],
}


@asynccontextmanager
async def serving(audit: Audit | None, **options: Any) -> AsyncIterator[str]:
    endpoints = NodeEndpoints(
        Telemetry(),
        audit=AuditWriter(audit, ManualClock(), Inline()) if audit is not None else None,
        healthy=lambda: True,
        ready=lambda: True,
        explain=lambda kind, key: STATUS if (kind, key) == ("status", "self") else None,
        host="127.0.0.1",
        port=0,
        notes=lambda: ("pods from the kubelet", "report: restarting after Conflict, 2 so far"),
        **options,
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(endpoints.run())
        async with asyncio.timeout(10):
            while not endpoints.ready():  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.01)
        yield f"127.0.0.1:{endpoints.port}"
        task.cancel()


def filled(path: Path, count: int) -> Audit:
    audit = Audit(path, ManualClock())
    for number in range(count):
        audit.record(reason="test", message=str(number))
    return audit


async def test_the_audit_log_is_read_page_by_page(tmp_path: Path) -> None:
    async with serving(filled(tmp_path, 5)) as address, aiohttp.ClientSession() as session:
        async with session.get(f"http://{address}/events?size=3", headers={"Accept": "application/json"}) as answer:
            first = await answer.json()
        assert [event["message"] for event in first["Events"]] == ["4", "3", "2"]
        url = f"http://{address}/events?size=3&pageToken={first['NextPageToken']}"
        async with session.get(url) as answer:
            lines = (await answer.text()).splitlines()
            assert len(lines) == 2
            assert "Next-Page-Token" not in answer.headers


@pytest.mark.parametrize(
    ("query", "code"),
    [("size=-1", 400), ("size=99999", 400), ("pageToken=unknown", 409), ("size=nonsense", 200)],
)
async def test_bad_questions_get_clear_answers(tmp_path: Path, query: str, code: int) -> None:
    async with (
        serving(filled(tmp_path, 1)) as address,
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}/events?{query}") as answer,
    ):
        assert answer.status == code


async def test_health_answers_tell_how_the_modules_are() -> None:
    async with (
        serving(None) as address,
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}/healthz") as answer,
    ):
        lines = (await answer.text()).splitlines()
        assert answer.status == 200
        assert lines == ["ok", "pods from the kubelet", "report: restarting after Conflict, 2 so far"]


async def test_without_an_audit_log_there_is_no_such_page() -> None:
    async with (
        serving(None) as address,
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}/events") as answer,
    ):
        assert answer.status == 404


async def test_the_status_table_is_fetched_and_shown() -> None:
    from rich.console import Console

    async with serving(None) as address:
        found = await fetch(Invocation(), Place(address), "self", "")
        with pytest.raises(Unavailable):
            await fetch(Invocation(), Place(address), "other", "")
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table(found))
    text = console.export_text()
    assert "shop/web" in text
    assert "12.5%" in text
    assert "3/-/0" in text


async def test_nobody_there_is_said_in_one_line() -> None:
    with pytest.raises(Unavailable, match="nothing answers"):
        await fetch(Invocation(), Place("127.0.0.1:1"), "self", "")


def test_flags_of_upstream_without_meaning_are_split_off() -> None:
    kept, ignored = drop_ignored(("--tsdb-path=/x", "--addr=:1", "-enable-pprof", "--pprof-addr", ":9317", "--v=4"))
    assert kept == ["--addr=:1", "--v=4"]
    assert ignored == ["tsdb-path", "enable-pprof", "pprof-addr"]


def test_inside_a_container_the_mounted_roots_are_used() -> None:
    found = complete(NodeSettings(), {"NODE_NAME": "here"}, exists=lambda path: True)
    assert (found.node_name, found.cgroup_root_dir, found.host_mode) == ("here", "/host-cgroup/", False)
    assert found.runtime_hooks_addr == "/host-var-run-koordlet/koordlet.sock"
    assert found.runtime_hooks_config_path == "/host-etc-hookserver/"
    assert found.runtime_hooks_host_endpoint == "/var/run/koordlet/koordlet.sock"
    on_host = complete(NodeSettings(), {"agent_mode": "hostMode"}, exists=lambda path: True)
    assert on_host.cgroup_root_dir == "/sys/fs/cgroup/"
    given = complete(NodeSettings(cgroup_root_dir="/mine"), {}, exists=lambda path: True)
    assert given.cgroup_root_dir == "/mine"


def test_the_command_refuses_unknown_flags() -> None:
    from kubetide.cli.main import cli

    result = CliRunner().invoke(cli, ["node", "--no-such-flag=1"])
    assert result.exit_code != 0


async def test_the_audit_log_is_for_loopback_or_those_with_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    audit = Audit(None, ManualClock())
    async with serving(audit, explain_token="secret") as url, aiohttp.ClientSession() as session:

        async def status(**headers: str) -> int:
            async with session.get(f"http://{url}/events", headers=headers) as response:
                return response.status

        assert await status() == 200
        monkeypatch.setattr("kubetide.kube.endpoints.is_loopback", lambda _: False)
        assert await status() == 401
        assert await status(Authorization="Bearer wrong") == 403
        assert await status(Authorization="Bearer secret") == 200
