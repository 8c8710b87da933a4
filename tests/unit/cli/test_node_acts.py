"""What people see of the acting agent: `kubetide node audit` and `kubetide explain node`."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubetide.cli.explain import node as explain_node
from kubetide.cli.main import Invocation
from kubetide.cli.node import audit as node_audit
from kubetide.cli.node import command, runtime_proxy
from kubetide.errors import SettingsError
from kubetide.node.executor.audit_log import Audit
from nodeworld import TestClock


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    clock = TestClock(datetime(2026, 1, 1, 12, 0, tzinfo=UTC))
    audit = Audit(tmp_path, clock)
    audit.record(reason="AdjustBEByNodeCPUUsage", message="cpu.cfs_quota_us: -1 -> 170000", type="node", level=1)
    clock.advance(1)
    audit.record(reason="EvictPodByNodeMemoryUsage", message="full", type="pod", level=0, namespace="d", name="job")
    audit.close()
    return tmp_path


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(node_audit.command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_events_are_shown_newest_first_with_their_reason(directory: Path) -> None:
    first, second = shown("--directory", str(directory)).splitlines()
    assert "EvictPodByNodeMemoryUsage" in first
    assert "d/job" in first
    assert "-1 -> 170000" in second


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (["--reason", "AdjustBEByNodeCPUUsage"], 1),
        (["--pod", "d/job"], 1),
        (["--pod", "job"], 1),
        (["--pod", "other/job"], 0),
        (["--limit", "1"], 1),
        (["-o", "json"], 2),
    ],
)
def test_events_can_be_filtered(directory: Path, filters: list[str], count: int) -> None:
    lines = [line for line in shown("--directory", str(directory), *filters).splitlines() if line != "no events"]
    assert len(lines) == count


def test_the_last_decisions_of_the_strategies_are_explained() -> None:
    text = explain_node.render(
        {
            "qos": {
                "strategies": {
                    "cpu-suppress": {"at": "12:00", "policy": "cfsQuota", "leftMilli": 1700, "evicted": []},
                    "memory-evict": {"at": "12:00", "victims": ["d/job"], "reason": "memory 75 % is above 70 %"},
                },
                "failing": {"resctrl": "OSError: no"},
                "executor": {"written": 3, "failed": 0},
            },
            "runtime-hooks": {"hooks": {"pods": 4, "problems": {"d/bad": "not JSON"}}},
        }
    )
    for part in ("cpu-suppress", "1700", "d/job", "above 70 %", "resctrl fails", "3 written", "d/bad: not JSON"):
        assert part in text


def test_the_proxy_serves_no_docker(tmp_path: Path) -> None:
    arguments = ["--backend-runtime-mode", "Docker", "--hook-config", str(tmp_path)]
    result = CliRunner().invoke(runtime_proxy.command, arguments, obj=Invocation())
    assert "Docker" in str(result.exception)


@pytest.mark.parametrize(
    ("flag", "name"),
    [("--feature-gates=NoSuchGate=true", "NoSuchGate"), ("--qos-extension-plugins=missing=true", "missing")],
)
def test_a_name_that_does_not_exist_is_refused_before_a_cluster_is_looked_for(
    flag: str, name: str, tmp_path: Path
) -> None:
    kubeconfig = f"--kubeconfig={tmp_path / 'none'}"
    result = CliRunner().invoke(command.command, [flag, kubeconfig, "--node-name=here"], obj=Invocation())
    assert result.exit_code != 0
    assert isinstance(result.exception, SettingsError)
    assert name in str(result.exception)


def test_what_concerns_no_pod_is_of_the_node() -> None:
    line = node_audit.as_line({"createdAt": "2026-01-05T06:36:30Z", "reason": "Suppress", "type": "unknown"})
    assert line.split()[2:] == ["Suppress", "node"]
