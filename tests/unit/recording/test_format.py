"""Recordings on disk: what is written is read, and what cannot be read is one clear line."""

import errno
import zipfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from kubetide.errors import InvalidInput
from kubetide.recording.core.layout import Blocks
from kubetide.recording.format import MANIFEST, TABLES, Manifest
from kubetide.recording.reader import Recording
from kubetide.recording.writer import Writer

parquet = pytest.importorskip("pyarrow.parquet", reason="recordings need pyarrow: pip install 'kubetide[replay]'")

T0 = 1_700_006_400
DAY = 86400


def written(path: Path, *, containers: int = 3, days: int = 2, step: int = 3600) -> Path:
    with Writer(path, Manifest(source="csv", interval_seconds=step, start=T0)) as writer:
        ids = [writer.container("shop", "Deployment", f"w{n // 2}", f"w{n // 2}-{n}", "app") for n in range(containers)]
        for day in range(days):
            times = (T0 + day * DAY + np.arange(0, DAY, step)) * 1_000_000
            for number in ids:
                cpu = np.arange(times.size) + 1000 * number
                writer.usage(np.full(times.size, number), times, cpu, cpu * 10)
        writer.row("sizes", container_id=0, time=T0 * 1_000_000, cpu_request_millis=500)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    recording = Recording(written(tmp_path / "a.tide"))
    assert recording.containers.workload == ("w0", "w0", "w1")
    grids = list(recording.grids(0))
    assert [grid.start_seconds for grid in grids] == [T0, T0 + DAY]
    assert grids[1].cpu[5, 2] == pytest.approx(2005e-6)
    assert grids[1].memory[5, 2] == 20050.0
    assert recording.rows("sizes")["cpu_request_millis"] == [500]
    assert recording.rows("sizes")["memory_request_bytes"] == [None]
    assert recording.manifest.rows["usage"] == 3 * 48


def test_another_tool_reads_the_tables(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tide")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "out")
    table = parquet.read_table(tmp_path / "out" / "usage.parquet")
    assert table.column_names == list(TABLES["usage"])
    assert str(table.schema.field("time").type) == "timestamp[us, tz=UTC]"


def test_the_containers_of_a_workload_share_a_block(tmp_path: Path) -> None:
    blocks = Blocks(2)
    workloads = [("ns", "Deployment", name) for name in "aabbac"]
    found = [blocks.of(each) for each in workloads]
    assert found == [0, 0, 1, 1, 0, 2]


def test_samples_that_are_missing_stay_missing(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.tide", Manifest(interval_seconds=300, start=T0)) as writer:
        number = writer.container("ns", "Deployment", "w", "w-1", "app")
        times = np.array([T0, T0 + 600, T0 + 1500]) * 1_000_000
        writer.usage([number] * 3, times, [5, -1, 7], [50, 60, -1])
    (grid,) = Recording(tmp_path / "a.tide").grids(0)
    assert np.isnan(grid.cpu[:, 0]).tolist() == [False, True, True, True, True, False]
    assert np.isnan(grid.memory[:, 0]).tolist() == [False, True, False, True, True, True]


def test_of_two_samples_in_one_interval_the_later_counts(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.tide", Manifest(interval_seconds=300, start=T0)) as writer:
        number = writer.container("ns", "Deployment", "w", "w-1", "app")
        times = np.array([T0 + 200, T0 + 10, T0 + 10, T0 + 310]) * 1_000_000
        writer.usage([number] * 4, times, [9, 1, 2, 3], [90, 10, 20, 30])
    (grid,) = Recording(tmp_path / "a.tide").grids(0)
    assert grid.memory[:, 0].tolist() == [90.0, 30.0]
    assert grid.duplicates == 2


def test_late_samples_are_found_in_their_day(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.tide", Manifest(interval_seconds=3600, start=T0)) as writer:
        number = writer.container("ns", "Deployment", "w", "w-1", "app")
        for second, amount in ((0, 1), (DAY, 2), (3600, 3)):
            writer.usage([number], [(T0 + second) * 1_000_000], [amount], [amount])
    first, later = Recording(tmp_path / "a.tide").grids(0)
    assert first.memory[:2, 0].tolist() == [1.0, 3.0]
    assert later.memory[0, 0] == 2.0


@pytest.mark.parametrize("second", [-1, 253_402_300_800])
def test_times_that_no_clock_has_are_refused(tmp_path: Path, second: int) -> None:
    with (
        pytest.raises(InvalidInput, match=r"a\.tide time: a sample is not in the years 1970 to 9999"),
        Writer(tmp_path / "a.tide", Manifest(interval_seconds=300)) as writer,
    ):
        writer.usage([writer.container("ns", "Deployment", "w", "w-1", "app")], [second * 1_000_000], [1], [1])


def test_a_recording_of_nothing_but_older_samples_has_an_empty_interval(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.tide", Manifest(interval_seconds=15, start=1_700_000_000)) as writer:
        writer.usage([writer.container("ns", "Deployment", "w", "w-1", "app")], [1_699_999_990_000_000], [1], [1])
    (grid,) = Recording(tmp_path / "a.tide").grids(0)
    assert np.isnan(grid.cpu).tolist() == [[True]]


def test_a_recording_of_load_alone_knows_from_when_until_when(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.tide", Manifest(interval_seconds=300)) as writer:
        for at in (1_700_000_300, 1_700_000_000, 1_700_086_400):
            writer.row("load", namespace="ns", workload="w", metric="demand_cores", time=at * 1_000_000, value=1.0)
    manifest = Recording(tmp_path / "a.tide").manifest
    assert (manifest.start, manifest.end) == (1_700_000_000, 1_700_086_400)


def test_a_full_disk_is_one_line_that_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, *_: object, **__: object) -> None: ...

        def write_table(self, *_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "Error writing bytes to file")

        def close(self) -> None:
            raise OSError(errno.ENOSPC, "Error writing bytes to file")

    monkeypatch.setattr("kubetide.recording.writer.parquet", lambda: SimpleNamespace(ParquetWriter=Full))
    with (
        pytest.raises(InvalidInput, match=r"a\.tide: cannot be written: No space left on device"),
        Writer(tmp_path / "a.tide", Manifest(interval_seconds=300)) as writer,
    ):
        writer.container("ns", "Deployment", "w", "w-1", "app")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_recording_leaves_nothing(tmp_path: Path) -> None:
    with suppress(ZeroDivisionError), Writer(tmp_path / "a.tide", Manifest(start=T0)) as writer:
        writer.container("ns", "Deployment", "w", "w-1", "app")
        writer.row("nodes", node="a", time=1 // 0)
    assert list(tmp_path.iterdir()) == []


def replaced(path: Path, manifest: bytes) -> Path:
    changed = path.with_name("changed.tide")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, manifest if name == MANIFEST else old.read(name))
    return changed


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        pytest.param(
            {"format": "kubetide-recording", "version": "2.0"}, "is format 2.0, this kubetide reads 1.x", id="newer"
        ),
        pytest.param({"format": "kubetide-recording", "version": "x"}, "'x' is not a version", id="no-version"),
        pytest.param({"format": "else", "version": "1.0"}, "'else' is not 'kubetide-recording'", id="another-format"),
        pytest.param([], "the manifest cannot be read", id="no-object"),
        pytest.param(
            {"format": "kubetide-recording", "version": "1.1", "start": 0, "end": 10**12},
            "manifest.json start: goes from second 0 to 1000000000000",
            id="ages",
        ),
        pytest.param(
            {"format": "kubetide-recording", "version": "1.1", "start": -5}, "goes from second -5", id="before-1970"
        ),
    ],
)
def test_another_version_is_refused_by_name(tmp_path: Path, manifest: object, message: str) -> None:
    path = replaced(written(tmp_path / "a.tide"), msgspec.json.encode(manifest))
    with pytest.raises(InvalidInput, match=message):
        Recording(path)


def test_a_newer_minor_version_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tide")
    manifest = msgspec.to_builtins(Recording(path).manifest) | {"version": "1.7", "colour": "blue"}
    assert Recording(replaced(path, msgspec.json.encode(manifest))).manifest.version == "1.7"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_file_that_was_cut_off_says_so(tmp_path: Path, share: float) -> None:
    path = written(tmp_path / "a.tide")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InvalidInput, match=r"a\.tide: (is not a recording, or was cut off|cannot be read)"):
        Recording(path)


def test_damage_inside_is_found_where_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tide")
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("usage.parquet")
    content = bytearray(path.read_bytes())
    begin = member.header_offset + 60
    content[begin : begin + 200] = b"\xff" * 200
    path.write_bytes(bytes(content))
    with pytest.raises(InvalidInput, match="is damaged"):
        list(Recording(path).grids(0))


def test_what_is_no_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no such file"):
        Recording(tmp_path / "none.tide")
    with pytest.raises(InvalidInput, match="2147 cores"), Writer(tmp_path / "a.tide", Manifest(start=T0)) as writer:
        writer.usage([writer.container("n", "k", "w", "p", "c")], [T0 * 1_000_000], [2**40], [1])


@pytest.mark.parametrize("table", ["usage", "sizes"])
@pytest.mark.parametrize("from_end", [20, 60, 200])
def test_a_flipped_bit_of_a_footer_is_an_error_and_not_the_end_of_the_process(
    tmp_path: Path, table: str, from_end: int
) -> None:
    path = written(tmp_path / "a.tide")
    flip(path, f"{table}.parquet", -from_end)
    with pytest.raises(InvalidInput, match=rf"{table}\.parquet: is damaged: the checksum of its footer is another"):
        look(path)


def test_a_flipped_bit_of_a_page_is_never_a_sample(tmp_path: Path) -> None:
    for place in range(4, 400, 11):
        path = written(tmp_path / "a.tide")
        plain = [grid.memory.tobytes() for grid in Recording(path).grids(0)]
        flip(path, "usage.parquet", place)
        found = plain
        with suppress(InvalidInput):
            found = [grid.memory.tobytes() for grid in Recording(path).grids(0)]
        assert found == plain


def test_a_flipped_bit_of_the_manifest_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tide")
    flip(path, MANIFEST, 50)
    with pytest.raises(InvalidInput, match=r"manifest\.json: is damaged"):
        Recording(path)


def test_a_recording_of_1_0_has_no_checksums_of_footers_and_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tide")
    manifest = msgspec.to_builtins(Recording(path).manifest) | {"version": "1.0", "footers": {}}
    look(replaced(path, msgspec.json.encode(manifest)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"time": None}, "has no container_id or no time", id="no-time"),
        pytest.param({"container_id": 7}, "has container_id 7, containers has 3 rows", id="nobody"),
        pytest.param({"statistics": False}, "without statistics", id="no-statistics"),
    ],
)
def test_tables_of_another_writer_that_cannot_be_used_say_why(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    pa = pytest.importorskip("pyarrow")
    path = written(tmp_path / "a.tide")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "out")
    table = parquet.read_table(tmp_path / "out" / "usage.parquet")
    if "time" in change:
        table = table.drop_columns(["time"])
    if "container_id" in change:
        table = table.set_column(0, "container_id", pa.array([7] * table.num_rows, pa.int32()))
    parquet.write_table(table, tmp_path / "usage.parquet", write_statistics=change.get("statistics", True))
    manifest = msgspec.to_builtins(Recording(path).manifest) | {"footers": {}}
    with zipfile.ZipFile(path, "w") as new:
        new.writestr(MANIFEST, msgspec.json.encode(manifest))
        new.write(tmp_path / "out" / "containers.parquet", "containers.parquet")
        new.write(tmp_path / "usage.parquet", "usage.parquet")
    with pytest.raises(InvalidInput, match=message):
        look(path)


def test_a_recording_without_usage_has_no_blocks(tmp_path: Path) -> None:
    path = tmp_path / "a.tide"
    with zipfile.ZipFile(path, "w") as new:
        new.writestr(MANIFEST, msgspec.json.encode(Manifest(start=T0)))
    assert Recording(path).blocks == []


def test_a_folder_that_is_not_there_is_named_and_not_what_is_hidden_in_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none/a\.tide: cannot be written: No such file"):
        Writer(tmp_path / "none" / "a.tide", Manifest(start=T0))


def flip(path: Path, name: str, place: int) -> None:
    """Flip a bit of a member, counted from its end where the place is negative."""
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(name)
    begin = member.header_offset + 30 + len(name)
    content[begin + (place if place >= 0 else member.file_size + place)] ^= 4
    path.write_bytes(bytes(content))


def look(path: Path) -> None:
    recording = Recording(path)
    for block in recording.blocks:
        list(recording.grids(block))
    recording.rows("sizes")
