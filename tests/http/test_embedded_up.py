"""`kubetide up` as a process: it says when it is ready, survives being killed, and stops when told to."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner

from kubetide.api.values.codec import decode_raw, encode
from kubetide.cli.up import command
from kubetide.clock import SystemClock
from kubetide.errors import InvalidInput
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files
from kubetide.testing.builders import make_deployment

CONFIGS = "/api/v1/namespaces/default/configmaps"


@contextmanager
def up(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command until it is killed or told to stop."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kubetide", "up", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("ready: https://127.0.0.1:"), process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


async def test_what_was_written_survives_a_kill_and_the_kubeconfig_goes_on_working(tmp_path: Path) -> None:
    data, kubeconfig, audit = tmp_path / "data", tmp_path / "config", tmp_path / "audit"
    arguments = ("--data", str(data), "--kubeconfig", str(kubeconfig), "--audit", str(audit))
    with up(*arguments) as process:
        transport = HttpTransport(from_files([kubeconfig], clock=SystemClock()))
        answer = await transport.request("POST", CONFIGS, body=b'{"metadata":{"name":"kept"}}')
        assert answer.status == 201
        await transport.close()
        process.send_signal(signal.SIGKILL)
        process.wait()
    token = kubeconfig.read_text().split("token: ")[1]
    with up(*arguments) as process:
        assert kubeconfig.read_text().split("token: ")[1] == token
        transport = HttpTransport(from_files([kubeconfig], clock=SystemClock()))
        assert (await transport.request("GET", f"{CONFIGS}/kept")).status == 200
        # Namespaces are emptied and go even when nothing is simulated.
        made = await transport.request("POST", "/api/v1/namespaces", body=b'{"metadata":{"name":"brief"}}')
        assert made.status == 201
        async with transport.watch(
            "/api/v1/namespaces", query={"watch": "true", "fieldSelector": "metadata.name=brief"}
        ) as lines:
            assert b"ADDED" in await anext(lines)
            assert (await transport.request("DELETE", "/api/v1/namespaces/brief")).status == 200
            async for line in lines:
                if b'"type":"DELETED"' in line:
                    break
        await transport.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    assert b'"verb":"create"' in audit.read_bytes()


def test_other_machines_are_kept_out_unless_that_is_meant() -> None:
    result = CliRunner().invoke(command, ["--host", "0.0.0.0"])
    assert isinstance(result.exception, InvalidInput)
    assert "--allow-remote" in str(result.exception)


def test_a_pace_needs_something_to_pace() -> None:
    result = CliRunner().invoke(command, ["--bare", "--speed", "10"])
    assert isinstance(result.exception, InvalidInput)
    assert "--bare" in str(result.exception)


async def test_a_deployment_runs_on_the_three_nodes_that_are_there_by_default(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    with up("--kubeconfig", str(kubeconfig), "--speed", "20"):
        transport = HttpTransport(from_files([kubeconfig], clock=SystemClock()))
        nodes = decode_raw((await transport.request("GET", "/api/v1/nodes")).body)["items"]
        assert [node["metadata"]["name"] for node in nodes] == ["node-1", "node-2", "node-3"]
        path = "/apis/apps/v1/namespaces/default/deployments"
        body = encode(make_deployment("web", replicas=1, cpu="100m", memory="64Mi"))
        assert (await transport.request("POST", path, body=body)).status == 201
        async with asyncio.timeout(60), transport.watch(path, query={"watch": "true"}) as lines:
            async for line in lines:
                if decode_raw(line)["object"].get("status", {}).get("readyReplicas") == 1:
                    break
        await transport.close()


async def test_a_bare_server_has_no_nodes(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    with up("--kubeconfig", str(kubeconfig), "--bare"):
        transport = HttpTransport(from_files([kubeconfig], clock=SystemClock()))
        assert decode_raw((await transport.request("GET", "/api/v1/nodes")).body)["items"] == []
        await transport.close()


async def test_events_that_are_overdue_go_at_the_next_start(tmp_path: Path) -> None:
    data, kubeconfig = tmp_path / "data", tmp_path / "config"
    arguments = ("--data", str(data), "--kubeconfig", str(kubeconfig), "--event-ttl", "1ms")
    path = "/api/v1/namespaces/default/events"
    with up(*arguments) as process:
        transport = HttpTransport(from_files([kubeconfig], clock=SystemClock()))
        body = b'{"metadata":{"name":"old"},"involvedObject":{"kind":"Pod","namespace":"default"}}'
        assert (await transport.request("POST", path, body=body)).status == 201
        await transport.close()
        process.send_signal(signal.SIGKILL)
        process.wait()
    with up(*arguments):
        transport = HttpTransport(from_files([kubeconfig], clock=SystemClock()))
        async with transport.watch(path, query={"watch": "true"}) as lines:
            while (await transport.request("GET", f"{path}/old")).status != 404:
                assert await anext(lines)
        await transport.close()


def test_a_feature_gate_that_is_not_known_is_refused() -> None:
    result = CliRunner().invoke(command, ["--feature-gates", "Unknown=true"])
    assert isinstance(result.exception, InvalidInput)
    assert "HPAConfigurableTolerance" in str(result.exception)
