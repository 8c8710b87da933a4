"""Recordings under policies: figures by hand, no looking ahead, the same result for any number of workers."""

from pathlib import Path

import numpy as np
import pytest

from kubetide.cli.main import run_cli
from kubetide.errors import InvalidInput
from kubetide.recording.format import Manifest
from kubetide.recording.reader import Recording
from kubetide.recording.writer import Writer
from kubetide.replay.core.figures import SUMS, Prices
from kubetide.replay.core.services import Services, replay_services
from kubetide.replay.core.spec import Replicas
from kubetide.replay.demand import resampled, service_groups, services_of
from kubetide.replay.load import LoadSession
from kubetide.replay.report import table
from kubetide.replay.runs import Options, load_policy, run
from kubetide.replay.samples import Samples, read_samples
from kubetide.replay.usage import UsageSession
from kubetide.replay.worst import follow, follow_services

pytest.importorskip("pyarrow", reason="recordings need pyarrow: pip install 'kubetide[replay]'")

T0 = 1_700_006_400
HOUR, DAY = 3600, 86400
GIB = 2.0**30


def written(
    path: Path, cpu: np.ndarray, memory: np.ndarray, *, step: int = HOUR, warmup: int = 0, pods: int = 1, **sizes: int
) -> Path:
    """Write series (time by container) of cores and bytes; `pods` containers make a workload."""
    manifest = Manifest(interval_seconds=step, start=T0, warmup_periods=warmup)
    with Writer(path, manifest) as writer:
        for number in range(cpu.shape[1]):
            container = writer.container("ns", "Deployment", f"w{number // pods}", f"p{number}", "app")
            times = (T0 + np.arange(cpu.shape[0]) * step) * 1_000_000
            micros = np.where(np.isnan(cpu[:, number]), -1, np.rint(cpu[:, number] * 1e6)).astype(np.int64)
            amounts = np.where(np.isnan(memory[:, number]), -1, memory[:, number]).astype(np.int64)
            writer.usage(np.full(times.size, container), times, micros, amounts)
            if sizes:
                writer.row("sizes", container_id=container, time=T0 * 1_000_000, **sizes)
    return path


def noisy(days: int, width: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (days * 24, width)
    cpu = (0.1 + rng.random(width)) * (0.5 + rng.random(shape))
    memory = GIB * (0.5 + rng.random(width)) * (1.0 + 0.3 * rng.random(shape))
    return cpu, np.rint(memory)


def test_figures_of_a_case_that_can_be_counted_by_hand(tmp_path: Path) -> None:
    cpu, memory = np.full((48, 1), 0.5), np.full((48, 1), GIB)
    cpu[30], memory[40] = 2.0, 3 * GIB
    path = written(tmp_path / "a.tide", cpu, memory, cpu_request_millis=1000, memory_request_bytes=int(2 * GIB))
    (found,) = run(path, [load_policy("current")], Options(warmup_periods=0))
    figures = found.figures
    assert figures["cells"] == 2
    assert figures["overruns"] == 0.5
    assert figures["memory_footprint"] == pytest.approx(48 * 2 / (24 * 1 + 24 * 3))
    assert figures["memory_slack"] == pytest.approx(1 - (47 * 1 + 2) / 96)
    assert figures["work_above"] == pytest.approx(1.0 / (47 * 0.5 + 2.0))
    assert figures["under"] == pytest.approx(2 / 48)
    assert figures["changes"] == 0.0
    assert figures["core_hours"] == pytest.approx(48.0)


def test_the_clairvoyant_is_the_limit(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tide", *noisy(10, 6))
    outcomes = {
        each.policy: each.figures
        for each in run(path, [load_policy(name) for name in ("oracle", "vpa", "krr", "peak", "static")])
    }
    assert outcomes["oracle"]["memory_cost"] == pytest.approx(1.0)
    assert outcomes["oracle"]["cpu_cost"] == pytest.approx(1.0)
    for name in ("vpa", "krr", "peak", "static"):
        assert outcomes[name]["memory_cost"] > 1.0
        assert outcomes[name]["cpu_cost"] > 1.0


@pytest.mark.parametrize("name", ["vpa", "krr", "adaptive"])
def test_sizes_are_those_of_the_line_protocol(tmp_path: Path, name: str) -> None:
    """The protocol cannot look ahead; a replay that decides the same does not either."""
    cpu, memory = noisy(6, 3)
    path = written(tmp_path / "a.tide", cpu, memory)
    (found,) = run(path, [load_policy(name)], Options(warmup_periods=0))
    every = HOUR if name == "adaptive" else DAY
    session = UsageSession(name)
    names = ["c0", "c1", "c2"]
    session.handle(
        {"type": "begin", "interval": HOUR, "period": every, "resources": ["cpu", "memory"], "containers": names}
    )
    steps = every // HOUR
    force: dict[str, list[float]] = {}
    reserved = 0.0
    for at in range(0, len(cpu), steps):
        reserved += sum(force[each][1] * steps for each in force)
        for column, each in enumerate(names):
            samples = {"cpu": cpu[at : at + steps, column].tolist(), "memory": memory[at : at + steps, column].tolist()}
            session.handle({"type": "observe", "container": each, "time": T0 + at * HOUR, **samples})
            limit = force[each][-1] if each in force else None
            above = memory[at : at + steps, column] > limit if limit is not None else np.zeros(steps, dtype=bool)
            if limit is not None and above.any():
                when = T0 + (at + int(above.argmax())) * HOUR
                session.handle({"type": "oom", "container": each, "time": when, "limit": limit})
        answer = session.handle({"type": "decide", "time": T0 + (at + steps) * HOUR})
        assert answer is not None
        force |= answer["decisions"]
    assert found.figures["gib_hours"] == pytest.approx(reserved / GIB, rel=1e-6)


def test_the_result_does_not_depend_on_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubetide.recording.writer.BLOCK_CONTAINERS", 2)
    path = written(tmp_path / "a.tide", *noisy(3, 7), pods=2)
    policies = [load_policy(name) for name in ("vpa", "adaptive", "current")]
    alone, together = (run(path, policies, Options(workers=workers)) for workers in (1, 3))
    for one, other in zip(alone, together, strict=True):
        assert one.workloads == other.workloads
        assert one.sums.tobytes() == other.sums.tobytes()
        assert str(one.intervals) == str(other.intervals)


def test_pods_of_a_workload_have_one_size(tmp_path: Path) -> None:
    cpu, memory = noisy(4, 4)
    path = written(tmp_path / "a.tide", cpu, memory, pods=4)
    (found,) = run(path, [load_policy("peak")])
    largest = [memory[: day * 24].max() * 1.2 for day in range(1, 4)]
    assert found.figures["gib_hours"] == pytest.approx(sum(largest) * 24 * 4 / GIB)
    assert len(found.workloads) == 1


def test_an_update_rule_moves_less_and_never_in_the_cooldown(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tide", *noisy(12, 5))
    rules = {
        "eager": "{every: 1h}",
        "calm": "{every: 1h, when: change, change: 0.1}",
        "cool": "{every: 1h, cooldown: 2d, by: in-place}",
        "bound": "{every: 1h, when: bounds, change: 0.1}",
    }
    specs = []
    for name, rule in rules.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(f"sizes: {{estimator: vpa, update: {rule}}}\n")
        specs.append(load_policy(str(file)))
    found = {each.policy: each.figures for each in run(path, specs)}
    assert found["calm"]["changes"] < found["eager"]["changes"]
    assert found["cool"]["changes"] <= 3.5
    assert found["cool"]["restarts"] == 0.0
    assert found["eager"]["restarts"] == found["eager"]["changes"]
    assert found["bound"]["changes"] <= found["eager"]["changes"]


def test_gaps_are_not_counted(tmp_path: Path) -> None:
    cpu, memory = noisy(4, 2)
    cpu[24:48], memory[24:48] = np.nan, np.nan
    path = written(tmp_path / "a.tide", cpu, memory)
    (found,) = run(path, [load_policy("vpa")])
    assert found.figures["cells"] == 2 * 2  # three days without the first, one of them empty


def test_money_intervals_and_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path / "a.tide", *noisy(4, 5)))
    command = [
        "replay",
        path,
        "--policy",
        "vpa",
        "--policy",
        "oracle",
        "--price-cpu",
        "0.03",
        "--price-memory",
        "0.004",
    ]
    assert run_cli([*command, "-o", "csv"]) == 0
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    money = {row[0]: float(row[2]) for row in rows if row[1] == "money"}
    assert 0 < money["oracle"] < money["vpa"]
    low, value, high = next((float(row[3]), float(row[2]), float(row[4])) for row in rows if row[1] == "memory_cost")
    assert low <= value <= high
    assert run_cli(command) == 0
    assert "memory: cost" in capsys.readouterr().out


def test_what_does_not_divide_a_day_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tide", *noisy(1, 1))
    with pytest.raises(InvalidInput, match="7000 s do not divide a day"):
        run(path, [load_policy("vpa")], Options(interval_seconds=7000))


# -- replica counts


def demand(steps: int, services: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    level = 4.0 + 3.0 * np.abs((np.arange(steps)[:, None] % 800) / 400.0 - 1.0) * (1.0 + np.arange(services))
    found: np.ndarray = level * (0.8 + 0.4 * rng.random((steps, services)))
    return found


@pytest.mark.parametrize("percent", [50, 70])
def test_counts_are_those_of_the_line_protocol(percent: int) -> None:
    wanted = demand(400, 3)
    services = Services(
        names=("a", "b", "c"), demand=wanted, start_seconds=T0, pod_cores=np.ones(3), skip=np.zeros(3, dtype=np.int64)
    )
    together = replay_services(services, Replicas(target=percent), keep=True)
    session = LoadSession(f"hpa:{percent}")
    asked = np.clip(np.ceil(wanted[0] / 0.6), 1, 200).astype(int)
    begin = [{"name": name, "time": T0, "replicas": int(count)} for name, count in zip("abc", asked, strict=True)]
    session.handle(
        {"type": "begin", "step": 15, "start_seconds": 30, "pod_cores": 1.0, "min": 1, "max": 200, "services": begin}
    )
    ready, starting, queue = asked.copy(), [np.zeros(3, int), np.zeros(3, int)], np.zeros(3)
    for step in range(len(wanted)):
        ready = ready + starting.pop(0)
        starting.append(np.zeros(3, int))
        work = queue + wanted[step] * 15
        served = np.minimum(work, ready * 15.0)
        queue = np.minimum(work - served, ready * 60.0)
        seen = {
            name: [float(served[place] / 15), float(wanted[step, place]), int(ready[place]), int(asked[place])]
            for place, name in enumerate("abc")
        }
        answer = session.handle({"type": "step", "k": step, "services": seen})
        assert answer is not None
        counts = np.array([answer["replicas"][name] for name in "abc"])
        change = counts - asked
        starting[-1] = starting[-1] + np.maximum(change, 0)
        down = np.maximum(-change, 0)
        for place in (1, 0):
            taken = np.minimum(down, starting[place])
            starting[place], down = starting[place] - taken, down - taken
        ready, asked = ready - down, counts
        assert together.counts[step].tolist() == counts.tolist()


def test_behavior_and_headroom_count_too() -> None:
    services = Services(
        names=("a",), demand=demand(600, 1), start_seconds=T0, pod_cores=np.ones(1), skip=np.zeros(1, dtype=np.int64)
    )
    plain = replay_services(services, Replicas(target=70)).figures()
    learned = replay_services(services, Replicas(headroom="learned")).figures()
    safe = replay_services(services, Replicas(headroom="safe")).figures()
    for found in (plain, learned, safe):
        assert found["replicas_to_minimum"] >= 1.0
        assert found["replica_cost"] >= found["replicas_to_minimum"]


def test_demand_is_held_drawn_or_not_known() -> None:
    held = resampled(np.array([0, 60, 300]), np.array([1.0, 2.0, 3.0]), 60)
    assert held[:8].tolist() == [1.0] * 4 + [2.0] * 4
    assert np.isnan(held[8:20]).all()
    assert held[20:].tolist() == [3.0] * 4
    averaged = resampled(np.array([0, 5, 10, 15, 45]), np.array([1.0, 2.0, 3.0, 7.0, 9.0]), 5)
    assert averaged[:2].tolist() == [2.0, 7.0]
    assert np.isnan(averaged[2])
    drawn = resampled(np.arange(0, 1500, 300), np.arange(5.0), 300)
    assert (np.diff(drawn) >= 0).all()
    assert np.isnan(resampled(np.array([0, 300, 3000]), np.arange(3.0), 300)).any()


def services_with(demand: list[np.ndarray]) -> Services:
    width = len(demand)
    return Services(
        names=tuple(f"ns/s{number}" for number in range(width)),
        demand=np.array(demand).T,
        start_seconds=T0,
        pod_cores=np.ones(width),
        skip=np.zeros(width, dtype=np.int64),
    )


@pytest.mark.parametrize(
    "policy",
    [Replicas(target=60), Replicas(headroom="learned"), Replicas(headroom="safe")],
    ids=["hpa", "headroom", "headroom-safe"],
)
def test_a_gap_is_no_demand_of_nothing(policy: Replicas) -> None:
    rng = np.random.default_rng(4)
    demand = 6.0 + rng.random(2000)
    gap, late = demand.copy(), np.r_[np.full(700, np.nan), demand]
    gap[1000:1200] = np.nan
    figures = replay_services(services_with([demand[:1000], demand[:1000]]), policy, keep=True)
    found = replay_services(services_with([gap]), policy, keep=True)
    before = found.counts[999][0]
    assert [counts[0] for counts in found.counts[1000:1200]] == [before] * 200
    # The count after it is that of a service that goes on, and nothing is late.
    assert all(abs(int(counts[0]) - int(before)) <= 1 for counts in found.counts[1200:1400])
    assert found.late.tolist() == [0.0]
    # Nor does a service that comes later learn from the time before.
    later = replay_services(services_with([late[:1700], np.r_[demand, demand][:1700]]), policy, keep=True)
    assert [x[0] for x in later.counts[700:1700]] == [x[0] for x in figures.counts]


@pytest.mark.parametrize("policy", ["hpa:60", "headroom"])
def test_services_in_groups_are_what_they_are_together(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu, memory = noisy(2, 5)
    cpu[:7, 1] = np.nan
    path = written(tmp_path / "a.tide", cpu, memory, **SIZED)
    (together,) = run(path, [load_policy(policy)], Options(draws=0))
    monkeypatch.setattr("kubetide.replay.demand._MOST_CELLS", 2 * 86400 // 15)
    groups = [each.names for each in service_groups(Recording(path))]
    assert len(groups) > 2
    assert [name for names in groups for name in names] == list(services_of(Recording(path)).names)
    (apart,) = run(path, [load_policy(policy)], Options(draws=0))
    assert apart.figures == together.figures
    assert together.load is not None
    assert apart.load is not None
    assert apart.load.names == together.load.names
    np.testing.assert_array_equal(apart.load.sums, together.load.sums)


SIZED = {"cpu_request_millis": 500, "memory_request_bytes": int(GIB)}


@pytest.mark.parametrize("name", ["current", "vpa", "krr", "hpa:60"])
def test_a_workload_read_into_memory_comes_to_what_it_comes_to_in_its_recording(tmp_path: Path, name: str) -> None:
    cpu, memory = noisy(6, 6)
    path = written(tmp_path / "a.tide", cpu, memory, pods=2, **SIZED)
    unit, policy = "ns/Deployment/w1/app", load_policy(name)
    (part,), (whole,) = (run(each, [policy]) for each in (read_samples(path, [unit]), path))
    if whole.load is not None and part.load is not None:
        assert part.load.replicas.tolist() == whole.load.replicas[[whole.load.names.index("ns/w1")]].tolist()
        chosen = {name: ["ns/w1"]}
        (mine,), (theirs,) = (follow_services(each, [policy], chosen) for each in (read_samples(path, [unit]), path))
        assert mine.replicas.tolist() == theirs.replicas.tolist()
    else:
        assert part.sums[:, 0].tolist() == whole.sums[:, whole.workloads.index(unit)].tolist()
        (mine_,), (theirs_,) = (follow(each, [policy], {name: [unit]}) for each in (read_samples(path, [unit]), path))
        np.testing.assert_array_equal(mine_.new_memory, theirs_.new_memory)


def test_samples_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    flat = np.ones((24, 2))
    with pytest.raises(InvalidInput, match="workloads: needs one name per column"):
        Samples(cpu=flat, memory=flat, workloads=["a"], start_seconds=T0)
    with pytest.raises(InvalidInput, match="memory: has the shape"):
        Samples(cpu=flat, memory=flat[1:], workloads=["a", "b"], start_seconds=T0)
    with pytest.raises(InvalidInput, match="do not divide a day"):
        run(Samples(cpu=flat, memory=flat, workloads=["a", "b"], start_seconds=T0, interval_seconds=7), [])
    with pytest.raises(InvalidInput, match="has no workload ns/Deployment/w9/app"):
        read_samples(written(tmp_path / "a.tide", *noisy(1, 1)), ["ns/Deployment/w9/app"])


def test_an_oom_kill_without_an_amount_counts_with_the_request_of_its_time(tmp_path: Path) -> None:
    """Prometheus knows that a container was OOM killed, not what it had requested."""
    path = tmp_path / "a.tide"
    times = (T0 + np.arange(72) * HOUR) * 1_000_000
    with Writer(path, Manifest(interval_seconds=HOUR, start=T0)) as writer:
        for number in range(2):
            container = writer.container("ns", "Deployment", f"w{number}", f"p{number}", "app")
            writer.usage(np.full(72, container), times, np.full(72, 100_000), np.full(72, int(0.3 * GIB)))
            writer.row("oom_kills", container_id=container, time=(T0 + 30 * HOUR) * 1_000_000)
        size = {"cpu_request_millis": 100, "memory_request_bytes": int(2 * GIB)}
        writer.row("sizes", container_id=0, time=T0 * 1_000_000, **size)
    known, unknown = follow(path, [load_policy("vpa")])
    assert known.new_memory[-1] > 2.4 * GIB, "1.2 times the request"
    assert 0.4 * GIB < unknown.new_memory[-1] < GIB, "what was used before it, and 100 MiB"


def test_pods_are_as_large_as_all_their_containers(tmp_path: Path) -> None:
    path = tmp_path / "a.tide"
    times = (T0 + np.arange(24) * HOUR) * 1_000_000
    with Writer(path, Manifest(interval_seconds=HOUR, start=T0)) as writer:
        for pod in range(3):
            for name, millis in (("app", 900), ("sidecar", 100)):
                container = writer.container("ns", "Deployment", "web", f"web-{pod}", name)
                writer.usage(np.full(24, container), times, np.full(24, 500 * millis), np.full(24, int(GIB)))
                writer.row("sizes", container_id=container, time=T0 * 1_000_000, cpu_request_millis=millis)
        writer.container("ns", "Deployment", "queue", "queue-0", "app")
        writer.row("load", namespace="ns", workload="queue", metric="demand_cores", time=T0 * 1_000_000, value=2.0)
    services = services_of(Recording(path))
    assert services.names == ("ns/queue", "ns/web"), "who has no metric is counted by usage"
    assert services.pod_cores.tolist() == [1.0, 1.0]
    assert services.demand[0].tolist() == [2.0, 1.5]


def test_current_counts_replicas_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "a.tide"
    times = (T0 + np.arange(48) * HOUR) * 1_000_000
    with Writer(path, Manifest(interval_seconds=HOUR, start=T0)) as writer:
        for name in ("web", "unknown"):
            container = writer.container("ns", "Deployment", name, f"{name}-0", "app")
            writer.usage(np.full(48, container), times, np.full(48, 1_500_000), np.full(48, int(GIB)))
            writer.row("sizes", container_id=container, time=T0 * 1_000_000, cpu_request_millis=1000)
        for hour, wanted in ((0, 4), (24, 2)):
            at = (T0 + hour * HOUR) * 1_000_000
            writer.row("replicas", namespace="ns", kind="Deployment", workload="web", time=at, wanted=wanted)
    current, hpa = run(path, [load_policy("current"), load_policy("hpa:60")])
    assert (current.figures["services"], hpa.figures["services"]) == (1.0, 2.0)
    assert current.figures["replica_hours"] == pytest.approx(24 * 4 + 24 * 2, abs=0.1)
    assert current.figures["replicas_to_minimum"] == pytest.approx(1.5, abs=0.01)
    assert current.figures["cpu_footprint"] == pytest.approx(1 / 1.5)
    (followed,) = follow_services(path, [load_policy("current")], {"current": ["ns/web"]})
    assert set(followed.replicas.tolist()) == {4.0, 2.0}


def test_what_is_not_recorded_is_not_zero(tmp_path: Path) -> None:
    cpu, memory = noisy(3, 2)
    memory[:] = np.nan
    path = written(tmp_path / "a.tide", cpu, memory)
    policies = [load_policy("current"), load_policy("vpa")]
    current, vpa = run(path, policies, Options(prices=Prices(core=1.0)))
    assert all(np.isnan(current.figures[name]) for name in ("money", "core_hours", "throttled_work"))
    assert vpa.figures["money"] > 0
    assert np.isnan(vpa.figures["throttled_work"])
    assert "throttled" not in str(table([current, vpa]))


def test_a_recording_that_is_too_short_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cpu, memory = noisy(1, 2)
    path = written(tmp_path / "a.tide", cpu[:6], memory[:6])
    assert run_cli(["replay", str(path), "--policy", "vpa", "--workers", "1"]) == 2
    assert "nothing can be counted in its 5 hours: periods of 24 hours" in capsys.readouterr().err
    assert run_cli(["replay", str(path), "--policy", "vpa", "--workers", "1", "--period", "21600"]) == 2
    assert "periods of 6 hours count" in capsys.readouterr().err, "the period that was asked for"
    assert run_cli(["replay", str(path), "--policy", "vpa", "--workers", "1", "--period", "7200"]) == 0
    assert capsys.readouterr().err == ""
    both = ["--policy", "vpa", "--policy", "current", "--workers", "1", "--period", "7200"]
    assert run_cli(["replay", str(path), *both]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "a.tide: current: nothing can be counted" in line
    assert "current needs recorded requests" in line
    assert run_cli(["replay", str(path), "--audit"]) == 2
    assert "holds no decisions: record it with --live and --audit" in capsys.readouterr().err


def test_a_workload_that_comes_later_has_a_warm_up_of_its_own(tmp_path: Path) -> None:
    cpu, memory = noisy(10, 2)
    alone = written(tmp_path / "alone.tide", cpu[:, :1], memory[:, :1])
    late = np.roll(cpu[:, :1], 96, axis=0), np.roll(memory[:, :1], 96, axis=0)
    late[0][:96] = late[1][:96] = np.nan
    both = written(tmp_path / "both.tide", np.c_[cpu[:, 1:], late[0]], np.c_[memory[:, 1:], late[1]])
    options = Options(warmup_periods=3, days=None, draws=0)
    (expected,) = run(alone, [load_policy("vpa")], Options(warmup_periods=3, days=6, draws=0))
    (found,) = run(both, [load_policy("vpa")], options)
    np.testing.assert_allclose(found.sums[:, 1], expected.sums[:, 0], rtol=1e-12)
    assert found.sums[SUMS["cells"]].tolist() == [7.0, 3.0]
    (later,) = run(both, [load_policy("vpa")], Options(warmup_periods=3, skipped_days=8, draws=0))
    assert later.sums[SUMS["cells"]].tolist() == [2.0, 2.0]


def test_the_recorded_beginning_of_a_workload_counts_before_its_first_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.tide"
    times = (T0 + np.arange(48, 144) * HOUR) * 1_000_000
    with Writer(path, Manifest(interval_seconds=HOUR, start=T0)) as writer:
        for name, since in (("known", T0 * 1_000_000), ("unknown", None)):
            container = writer.container("ns", "Deployment", name, f"{name}-0", "app", since=since)
            writer.usage(np.full(96, container), times, np.full(96, 100_000), np.full(96, int(GIB)))
    (found,) = run(path, [load_policy("vpa")], Options(warmup_periods=3, draws=0))
    assert found.sums[SUMS["cells"]].tolist() == [3.0, 1.0]


def test_moves_before_the_warm_up_is_over_are_not_counted() -> None:
    level = np.repeat([1.0, 2.0, 4.0, 8.0, *[16.0] * 10], 12)[:, None]
    samples = Samples(
        cpu=0.1 * level, memory=GIB * level, workloads=["w"], start_seconds=T0, period_seconds=HOUR, warmup_periods=8
    )
    (calm,) = run(samples, [load_policy("peak")], Options(draws=0))
    assert calm.figures["changes"] == 0.0
    assert calm.sums[SUMS["cells"]].tolist() == [6.0]
    (early,) = run(samples, [load_policy("peak")], Options(draws=0, warmup_periods=3))
    # At the end of the periods of 8 and of 16 GiB.
    assert early.sums[SUMS["changes"]].tolist() == [2.0]


def test_a_change_of_a_workload_counts_for_the_pods_that_live_then() -> None:
    days, pods = 10, 10
    cpu, memory = np.full((days * 24, pods), np.nan), np.full((days * 24, pods), np.nan)
    for pod in range(pods):
        life = slice(pod * 24, (pod + 1) * 24)
        cpu[life, pod], memory[life, pod] = 0.5, GIB * (4.0 if pod >= 5 else 1.0)
    samples = Samples(cpu=cpu, memory=memory, workloads=["w"] * pods, start_seconds=T0, interval_seconds=HOUR)
    (found,) = run(samples, [load_policy("peak")], Options(draws=0))
    assert found.sums[SUMS["changes"]].tolist() == found.sums[SUMS["restarts"]].tolist() == [1.0]
    assert found.figures["changes"] == pytest.approx(7 / 9)
