"""A live recording of the simulated cluster, and a replay of it: every decision comes out the same."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from kubetide.api.objects.meta import ObjectReference
from kubetide.api.objects.metrics import MetricValue
from kubetide.api.objects.scheme import PODS
from kubetide.cli.main import run_cli
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.errors import InvalidInput, Unavailable
from kubetide.kube.metrics import CustomMetrics
from kubetide.recording.core.pseudonyms import Pseudonyms
from kubetide.recording.format import Manifest
from kubetide.recording.live import LiveRecorder
from kubetide.recording.reader import Recording
from kubetide.recording.writer import Writer
from kubetide.replay.audit import audit_autoscaler, audit_recommender, recorded_cluster
from kubetide.testing import Cluster
from simulated.recording import record

pytest.importorskip("pyarrow", reason="recordings need pyarrow: pip install 'kubetide[replay]'")


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("live") / "hour.tide"
    record(path, workloads=6, duration=timedelta(hours=2))
    return path


def test_every_recommendation_comes_out_the_same(hour: Path) -> None:
    found = audit_recommender(Recording(hour))
    assert found.made > 3 * 100
    assert found.differences == []


def test_every_replica_count_comes_out_the_same(hour: Path) -> None:
    found = audit_autoscaler(Recording(hour))
    assert found.made > 3 * 400
    assert (found.left_out, found.differences) == (0, [])


def test_a_container_that_is_not_listed_after_an_oom_kill_is_not_seen(tmp_path: Path) -> None:
    """Between its OOM kill and its second scrape a container has no usage: its last sample must not be shown again."""
    path, loop = tmp_path / "coarse.tide", timedelta(minutes=5)
    record(path, workloads=6, duration=timedelta(hours=3), resolution=timedelta(minutes=1), loop=loop)
    recording = Recording(path)
    assert len(recording.rows("oom_kills")["time"]) > 4
    for found in (audit_recommender(recording, interval=loop), audit_autoscaler(recording)):
        assert found.made > 100
        assert found.differences == []


def test_a_decision_that_was_another_is_found(hour: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Recording.rows

    def forged(self: Recording, table: str) -> object:
        rows = dict(plain(self, table))
        if table == "decisions":
            rows["decision"] = [text.replace('"desired":2', '"desired":3') for text in rows["decision"]]
        return rows

    monkeypatch.setattr(Recording, "rows", forged)
    found = audit_autoscaler(Recording(hour))
    assert found.differences
    assert "again 2" in found.differences[0]


def test_the_recording_holds_what_happened(hour: Path) -> None:
    recording = Recording(hour)
    assert recording.manifest.gaps == []
    assert len(set(recording.rows("nodes")["node"])) == 4
    assert set(recording.containers.kind) == {"Deployment"}
    assert recording.rows("oom_kills")["container_id"]
    kinds = set(recording.rows("objects")["kind"])
    assert {"Pod", "Deployment", "HorizontalPodAutoscaler", "VerticalPodAutoscaler", "Node"} <= kinds
    wanted = recording.rows("replicas")
    assert max(wanted["wanted"]) > 2
    assert 300 * 2**20 in recording.rows("sizes")["memory_limit_bytes"]


def test_the_command_line_agrees(hour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["replay", str(hour), "--audit"]) == 0
    assert "decisions came out the same" in capsys.readouterr().out
    policies = ["--policy", "vpa", "--policy", "hpa:60", "--every", "15m", "--period", "3600"]
    assert run_cli(["replay", str(hour), *policies, "-o", "json"]) == 0
    outcomes = json.loads(capsys.readouterr().out)["outcomes"]
    assert outcomes[0]["figures"]["memory_footprint"] > 0
    assert outcomes[1]["figures"]["replica_hours"] > 0


def test_names_are_hidden_and_decisions_still_come_out_the_same(tmp_path: Path) -> None:
    path = tmp_path / "hidden.tide"
    record(path, workloads=4, duration=timedelta(minutes=20), pseudonyms=Pseudonyms(b"key"))
    content = path.read_bytes()
    recording = Recording(path)
    assert recording.manifest.anonymized
    texts = [
        text
        for table in ("objects", "decisions")
        for text in recording.rows(table)["object" if table == "objects" else "decision"]
    ]
    for name in ("ns1", "w1", "node-1", "pod-template-hash"):
        assert not any(f'"{name}"' in text for text in texts), name
        assert name not in recording.rows("containers")["namespace"]
    assert b"kubetide-recording" in content
    for audit in (audit_recommender, audit_autoscaler):
        found = audit(recording)
        assert found.made > 0
        assert found.differences == []


def test_what_was_decided_before_the_recording_is_no_decision_of_it(tmp_path: Path) -> None:
    path = tmp_path / "late.tide"
    record(path, workloads=2, duration=timedelta(minutes=2), late=timedelta(minutes=5, seconds=30))
    recording = Recording(path)
    objects, decisions = recording.rows("objects"), recording.rows("decisions")
    kinds = zip(objects["kind"], objects["event"], objects["time"], objects["object"], strict=True)
    (first,) = [(at, text) for kind, event, at, text in kinds if (kind, event) == ("VerticalPodAutoscaler", "ADDED")]
    assert "recommendation" in first[1]
    decided = [at for at, kind in zip(decisions["time"], decisions["kind"], strict=True) if kind.startswith("V")]
    assert all(at > first[0] for at in decided)


def test_a_recording_without_objects_cannot_be_audited(tmp_path: Path) -> None:
    source = tmp_path / "usage.csv"
    source.write_text("time,container,cpu_cores,memory_bytes\n0,app,0.1,1000\n300,app,0.2,2000\n")
    assert run_cli(["record", "--from-csv", str(source), "-o", str(tmp_path / "csv.tide")]) == 0
    recording = Recording(tmp_path / "csv.tide")
    assert audit_recommender(recording).made == 0
    with pytest.raises(InvalidInput, match="not a live recording"):
        recorded_cluster(recording)


def test_throttling_that_node_agents_report_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def for_pods(metrics: CustomMetrics, namespace: str, metric: str) -> tuple[MetricValue, ...]:
        asked.append(metric)
        pods = await metrics._client.list(PODS, namespace=namespace)
        return tuple(
            MetricValue(described_object=ObjectReference(kind="Pod", name=pod.metadata.name), value="250m")
            for pod in pods.items
        )

    monkeypatch.setattr(CustomMetrics, "for_pods", for_pods)
    path = tmp_path / "a.tide"
    record(path, workloads=2, duration=timedelta(minutes=5))
    assert set(asked) == {"cpu_throttled_ratio"}
    recording = Recording(path)
    shares = [rows.throttled[rows.cpu_micros >= 0] for rows, _, _ in recording.samples() if rows.throttled is not None]
    assert {float(share) for part in shares for share in part} == {0.25}


def test_a_recording_that_is_stopped_early_keeps_what_it_has_and_names_its_gap(tmp_path: Path) -> None:
    async def main() -> None:
        async with Cluster(nodes=1) as cluster:
            clock = virtual_clock()
            start = int(clock.now().timestamp())
            with Writer(tmp_path / "a.tide", Manifest(source="live", interval_seconds=15, start=start)) as writer:
                recorder = LiveRecorder(cluster.client(), clock, writer, namespace="nowhere")
                # Nobody serves usage any more.
                recorder._usage = NoMetrics()  # type: ignore[assignment]
                stop = asyncio.Event()
                asyncio.get_running_loop().call_later(120, stop.set)
                await recorder.run(timedelta(hours=1), stop=stop)
            assert clock.now().timestamp() == pytest.approx(start + 120, abs=1)
            (gap,) = Recording(tmp_path / "a.tide").manifest.gaps
            assert (gap.start, gap.end, gap.reason) == (start, start + 120, "the metrics API was away")

    run_virtual(main())


class NoMetrics:
    async def pods(self, namespace: str | None) -> list[object]:
        raise Unavailable("the metrics API is away")
