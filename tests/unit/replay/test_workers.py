"""Work that is spread: identical for any number of workers, on Dask, after a death, and after Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pytest

from kubetide.cli.main import run_cli
from kubetide.errors import InvalidInput, Unavailable
from kubetide.recording import writer as writers
from kubetide.recording.format import Manifest
from kubetide.recording.writer import Writer
from kubetide.replay import runs
from kubetide.replay.parts import kept, parts_file
from kubetide.replay.report import as_json
from kubetide.replay.runs import Options, load_policy, run, with_cadence
from kubetide.replay.workers import Workers, spread

pytest.importorskip("pyarrow", reason="recordings need pyarrow: pip install 'kubetide[replay]'")

T0, HOUR, GIB = 1_700_006_400, 3600, 2**30
POLICIES = [load_policy(name) for name in ("vpa", "peak", "adaptive")]


@pytest.fixture
def tide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four blocks of two workloads each."""
    monkeypatch.setattr(writers, "BLOCK_CONTAINERS", 2)
    path = tmp_path / "a.tide"
    rng = np.random.default_rng(5)
    times = (T0 + np.arange(72) * HOUR) * 1_000_000
    with Writer(path, Manifest(interval_seconds=HOUR, start=T0)) as writer:
        for number in range(8):
            container = writer.container("ns", "Deployment", f"w{number}", f"p{number}", "app")
            cpu = rng.integers(100_000, 900_000, 72)
            writer.usage(np.full(72, container), times, cpu, rng.integers(GIB, 2 * GIB, 72))
    return path


def doubled(number: int) -> int:
    return 2 * number


def dies_once(item: tuple[str, int]) -> int:
    """End this worker the way the kernel does, the first time that item 1 comes along."""
    mark, number = Path(item[0]), item[1]
    if number == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def dies(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_every_item_comes_back_with_its_place(processes: int, fresh: bool) -> None:
    workers = Workers(processes=processes, fresh=fresh)
    assert sorted(spread(doubled, [5, 6, 7], workers)) == [(0, 10), (1, 12), (2, 14)]


@pytest.mark.parametrize("fresh", [False, True])
def test_what_a_dead_worker_had_is_done_again(tmp_path: Path, fresh: bool) -> None:
    items = [(str(tmp_path / "died"), number) for number in range(4)]
    found = sorted(spread(dies_once, items, Workers(processes=2, fresh=fresh)))
    assert (tmp_path / "died").exists()
    assert found == [(number, 2 * number) for number in range(4)]


def sleeps(item: tuple[str, int]) -> int:
    """Return at once for item 0; the others would take a minute, and leave their process number."""
    folder, number = item
    if number:
        Path(folder, str(os.getpid())).touch()
        time.sleep(60)
    return number


@pytest.mark.parametrize("fresh", [False, True])
def test_who_stops_listening_does_not_wait_for_what_has_begun(tmp_path: Path, fresh: bool) -> None:
    items = [(str(tmp_path), number) for number in range(3)]
    results = spread(sleeps, items, Workers(processes=2, fresh=fresh))
    assert next(results) == (0, 0)
    while not (busy := [int(each.name) for each in tmp_path.iterdir()]):
        time.sleep(0.01)
    results.close()  # type: ignore[attr-defined]
    for process in active_children():
        process.join(10)
    alive = [pid for pid in busy if Path(f"/proc/{pid}").exists()]
    assert alive == []


@pytest.mark.parametrize("fresh", [False, True])
def test_work_that_always_kills_its_workers_is_an_error(fresh: bool) -> None:
    with pytest.raises(Unavailable, match="died 3 times"):
        list(spread(dies, [1], Workers(processes=2, fresh=fresh)))


def refuses(number: int) -> int:
    raise InvalidInput("no", field=str(number))


@pytest.mark.parametrize("fresh", [False, True])
def test_the_mistake_of_a_piece_is_told_as_it_is(fresh: bool) -> None:
    with pytest.raises(InvalidInput, match="7: no"):
        list(spread(refuses, [7], Workers(processes=2, fresh=fresh)))


INTERRUPTED = """
import time
from kubetide.replay.workers import Workers, spread

for _ in spread(time.sleep, [0.0, 600.0, 600.0], Workers(processes=1, fresh={fresh})):
    raise KeyboardInterrupt
"""


@pytest.mark.parametrize("fresh", [False, True])
def test_who_is_interrupted_ends(fresh: bool) -> None:
    code = INTERRUPTED.format(fresh=fresh)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode != 0
    assert "KeyboardInterrupt" in ended.stderr


def test_replays_are_the_same_for_any_number_of_workers(tide: Path) -> None:
    found = [as_json(run(tide, POLICIES, Options(workers=number))) for number in (1, 2, 4)]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("every", ["1h", "1d"])
def test_blocks_side_by_side_are_what_they_are_apart(tide: Path, monkeypatch: pytest.MonkeyPatch, every: str) -> None:
    policies = [with_cadence(each, every) for each in POLICIES]
    together = [each.sums.tobytes() for each in run(tide, policies)]
    monkeypatch.setattr(runs, "BLOCKS", 1)
    assert [each.sums.tobytes() for each in run(tide, policies)] == together


def test_replays_are_the_same_on_a_dask_cluster_that_loses_a_worker(tide: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'kubetide[fleet]'")
    alone = as_json(run(tide, POLICIES, Options(workers=1)))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        address = cluster.scheduler_address
        assert as_json(run(tide, POLICIES, Options(scheduler=address))) == alone
        killed: list[int] = []

        def lose_a_worker(done: int, total: int) -> None:
            if not killed:
                nanny = next(iter(cluster.workers.values()))
                killed.append(nanny.pid)
                os.kill(nanny.pid, signal.SIGKILL)

        again = run(tide, POLICIES, Options(scheduler=address), progress=lose_a_worker)
    assert killed
    assert as_json(again) == alone


def test_ctrl_c_keeps_what_is_done_and_resume_goes_on(tide: Path) -> None:
    alone = as_json(run(tide, POLICIES))

    def interrupt(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tide, POLICIES, Options(workers=2), progress=interrupt)
    assert len({block for block, _ in kept(parts_file(tide))}) == 2
    counts: list[tuple[int, int]] = []
    again = Options(resume=True, workers=2)
    resumed = run(tide, POLICIES, again, progress=lambda done, total: counts.append((done, total)))
    assert counts == [(3, 4), (4, 4)], "two blocks were left to do"
    assert as_json(resumed) == alone
    assert not parts_file(tide).exists()


def test_parts_of_another_policy_or_count_are_not_mixed_in(tide: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tide, POLICIES, Options(workers=2), progress=interrupt)
    other = Options(resume=True, warmup_periods=0)
    assert as_json(run(tide, POLICIES, other)) == as_json(run(tide, POLICIES, Options(warmup_periods=0)))


def test_nothing_to_resume_and_damaged_parts_are_one_line(tide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidInput, match="nothing to resume"):
        run(tide, POLICIES, Options(resume=True))
    parts_file(tide).write_bytes(b"not an archive")
    assert run_cli(["replay", str(tide), "--policy", "vpa", "--resume"]) == 2
    assert "is damaged; delete it to begin anew" in capsys.readouterr().err


def test_a_scheduler_that_is_not_there_is_one_line(tide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed", reason="needs Dask: pip install 'kubetide[fleet]'")
    code = run_cli(["replay", str(tide), "--policy", "vpa", "--scheduler", "nonsense://x"])
    assert code != 0
    assert "Dask scheduler at nonsense://x does not answer" in capsys.readouterr().err


def test_ctrl_c_among_replica_counts_keeps_them_and_the_sizes(tide: Path) -> None:
    policies = [*POLICIES[:1], load_policy("hpa:60"), load_policy("hpa:80")]
    whole = as_json(run(tide, policies, Options(days=2)))
    for finished in (1, 6):
        told: list[tuple[int, int]] = []

        def interrupt(done: int, total: int, last: int = finished, told: list[tuple[int, int]] = told) -> None:
            told.append((done, total))
            if done == last:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(tide, policies, Options(days=2), progress=interrupt)
        assert told[-1] == (finished, 6), "two policies of counts, and four blocks"
        assert len(kept(parts_file(tide))) == finished
        resumed = run(tide, policies, Options(days=2, resume=True))
        assert as_json(resumed) == whole
        assert not parts_file(tide).exists()
