"""The audit log: rotation, paging backwards, expiry of readers."""

import os
from pathlib import Path

import pytest

from kubetide.errors import InvalidInput
from kubetide.node.executor import audit_log as audit_module
from kubetide.node.executor.audit_log import Audit, UnknownToken, lines_backwards
from unit.node.memory_host import ManualClock


def filled(path: Path, count: int, *, size: int = 10, clock: ManualClock | None = None) -> Audit:
    audit = Audit(path, clock or ManualClock())
    for number in range(count):
        audit.record(reason="test", message=f"{number:06d}" + "x" * size)
    return audit


def test_events_come_newest_first_page_by_page(tmp_path: Path) -> None:
    audit = filled(tmp_path, 10)
    first, token = audit.query(4)
    second, token2 = audit.query(4, token)
    third, end = audit.query(4, token2)
    numbers = [int(event["message"][:6]) for event in (*first, *second, *third)]
    assert numbers == list(range(9, -1, -1))
    assert (token == token2, end) == (True, "")


def test_lines_longer_than_a_chunk_are_read_whole(tmp_path: Path) -> None:
    audit = filled(tmp_path, 3, size=20_000)
    events, _ = audit.query()
    assert [len(event["message"]) for event in events] == [20_006] * 3


def test_the_log_is_bounded_by_the_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "FILE_BYTES", 1000)
    clock = ManualClock()
    audit = Audit(tmp_path, clock, max_bytes=4000)
    for number in range(200):
        audit.record(reason="test", message=f"{number:06d}" + "x" * 100)
        clock.advance(1)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert len([name for name in files if name != "audit.log"]) <= 3
    events, _ = audit.query()
    assert events[0]["message"].startswith("000199")


def test_readers_that_nobody_came_back_to_are_closed(tmp_path: Path) -> None:
    clock = ManualClock()
    audit = filled(tmp_path, 10, clock=clock)
    _, token = audit.query(4)
    before = len(os.listdir("/proc/self/fd"))
    clock.advance(601)
    audit.keep_house()
    assert len(os.listdir("/proc/self/fd")) == before - 1
    with pytest.raises(UnknownToken):
        audit.query(4, token)


def test_names_of_one_second_get_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "FILE_BYTES", 300)
    filled(tmp_path, 12, size=100)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name[-6:] for name in names if name.startswith("audit-")][:3] == ["-0.log", "-1.log", "-2.log"]


def test_a_restart_counts_what_is_already_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "FILE_BYTES", 1000)
    (tmp_path / "audit.log").write_bytes(b'{"reason":"old"}\n' * 58)
    filled(tmp_path, 1)
    assert len(list(tmp_path.glob("audit-*.log"))) == 1


def test_events_above_the_verbosity_are_dropped(tmp_path: Path) -> None:
    audit = Audit(tmp_path, ManualClock(), verbosity=3)
    audit.record(reason="loud", message="", level=3)
    audit.record(reason="quiet", message="", level=4)
    assert [event["reason"] for event in audit.query()[0]] == ["loud"]
    everything = Audit(tmp_path, ManualClock(), verbosity=0)
    everything.record(reason="quiet", message="", level=9)
    assert everything.query()[0][0]["reason"] == "quiet"


def test_a_token_that_expired_is_not_a_new_reader(tmp_path: Path) -> None:
    clock = ManualClock()
    audit = filled(tmp_path, 10, clock=clock)
    _, token = audit.query(2)
    clock.advance(601)
    with pytest.raises(UnknownToken):
        audit.query(2, token)


def test_the_oldest_reader_is_closed_when_there_are_too_many(tmp_path: Path) -> None:
    audit = filled(tmp_path, 10)
    _, first = audit.query(2)
    for _ in range(4):
        audit.query(2)
    with pytest.raises(UnknownToken):
        audit.query(2, first)


@pytest.mark.parametrize("size", [-1, 2049])
def test_a_page_has_a_sensible_size(tmp_path: Path, size: int) -> None:
    with pytest.raises(InvalidInput):
        filled(tmp_path, 1).query(size)


def test_corrupt_lines_are_passed_over(tmp_path: Path) -> None:
    audit = filled(tmp_path, 2)
    audit.flush()
    with open(tmp_path / "audit.log", "ab") as file:
        file.write(b"not json\n\n[1]\n")
    assert len(audit.query()[0]) == 2


def test_without_a_directory_nothing_is_kept() -> None:
    audit = Audit(None, ManualClock())
    audit.record(reason="test", message="")
    assert audit.query()[0] == []


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert list(lines_backwards(tmp_path / "none")) == []
