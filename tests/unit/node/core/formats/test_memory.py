"""Memory files, idle pages, pressure."""

import pytest

from kubetide.node.core.formats import memory, psi
from kubetide.node.core.formats.numbers import FormatError
from unit.node.idle_pages import HEAD, rows_of

FIELDS = ("file", "anon", "inactive_file", "active_file", "inactive_anon", "active_anon", "unevictable")
ROWS = rows_of(lambda kind: "1 2 4 8 16 32 64 128")


def idle(head: tuple[str, ...] = HEAD, rows: list[str] = ROWS) -> str:
    return "\n".join((*head, *rows)) + "\n"


def test_usage_is_anonymous_and_unevictable_memory() -> None:
    text = "\n".join(f"{name} {2**index}" for index, name in enumerate(FIELDS))
    found = memory.memory_stat(text, 2)
    assert (found.cache, found.rss, found.usage, found.usage_with_page_cache) == (1, 2, 112, 124)
    with pytest.raises(FormatError):
        memory.memory_stat(text, 1)


@pytest.mark.parametrize("missing", FIELDS)
def test_every_field_of_memory_stat_must_be_there(missing: str) -> None:
    with pytest.raises(FormatError):
        memory.memory_stat("\n".join(f"{name} 1" for name in FIELDS if name != missing), 2)


@pytest.mark.parametrize("node", ["\u00b2", "\u0663", "9" * 5000, "", "-1"])
def test_a_numa_node_without_a_number_is_refused(node: str) -> None:
    with pytest.raises(FormatError, match="is no NUMA node"):
        memory.numa_usage(f"anon N{node}=1\nfile N0=4\n", 2)


def test_meminfo_takes_what_it_can_read_and_the_rest_is_zero() -> None:
    text = "MemTotal:  100 kB\nMemFree:\nMemAvailable: x kB\nno colon\nActive(anon): 7 kB\r\n"
    found = memory.meminfo(text)
    assert (found["MemTotal"], found["MemFree"], found["MemAvailable"], found["Cached"]) == (100, 0, 0, 0)
    assert found["Active(anon)"] == 7
    assert found.usage_bytes == 102400


def test_the_first_two_words_of_a_numa_line_are_cut_off() -> None:
    assert memory.meminfo("Node 0 MemTotal: 5 kB\n", numa=True).total_bytes == 5120
    assert memory.meminfo("Node 0 MemTotal: 5 kB\n").total_bytes == 0


def test_more_available_than_there_is_means_nothing_is_used() -> None:
    found = memory.meminfo("MemTotal: 5 kB\nMemAvailable: 6 kB\nMemFree: 7 kB\n")
    assert (found.usage_bytes, found.usage_with_page_cache_bytes) == (0, 0)


@pytest.mark.parametrize(("boundary", "columns"), [(0, 255), (5, 224), (7, 128), (8, 0), (99, 0)])
def test_cold_pages_are_inactive_file_pages_from_the_boundary_on(boundary: int, columns: int) -> None:
    assert memory.idle_page_stats(idle()).cold_bytes(boundary) == 4 * columns


def test_the_header_of_idle_pages_is_read_wherever_it_stands() -> None:
    found = memory.idle_page_stats(idle(tuple(f"\t{line}" for line in reversed(HEAD))))
    assert (found.version, found.page_scans, found.scan_period_seconds, found.use_hierarchy) == ("1.0", 24, 120, 1)
    assert found.buckets == (1, 2, 5, 15, 30, 60, 120, 240)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("abc", id="something-else"),
        pytest.param(idle(HEAD[1:]), id="a-comment-too-few"),
        pytest.param(idle(rows=ROWS[1:]), id="a-row-too-few"),
        pytest.param(idle() + "\n", id="an-empty-line-at-the-end"),
        pytest.param(idle((*HEAD, "# more"), ROWS[1:]), id="a-comment-for-a-row"),
        pytest.param(idle(rows=[*ROWS[:-1], "  slab 1 2 3"]), id="a-short-row"),
        pytest.param(idle(rows=[*ROWS[:-1], "  slab 1 2 3 4 5 6 7 x"]), id="no-number"),
    ],
)
def test_idle_pages_in_another_shape_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        memory.idle_page_stats(text)


def test_a_kernel_without_full_cpu_pressure_reports_it() -> None:
    line = "avg10=1.50 avg60=2.00 avg300=3.00 total=4"
    found = psi.pressure(f"some {line}\n")
    assert (found.some.avg10, found.some.total, found.full.avg10, found.full_supported) == (1.5, 4, 0.0, False)
    assert psi.pressure(f"some {line}\r\n\tfull {line}\n\n").full_supported


def test_a_pressure_file_without_its_some_line_gives_what_it_has() -> None:
    found = psi.pressure("full avg10=1.50 avg60=2.00 avg300=3.00 total=4\n")
    assert (found.full.avg10, found.full.total, found.full_supported) == (1.5, 4, True)
    assert (found.some, found.some_supported) == (psi.PressureLine(), False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "wrong content",
        "some avg10=1 avg60=2 avg300=3",
        "some avg10=. avg60=2 avg300=3 total=4",
        "some avg10=1e999 avg60=2 avg300=3 total=4",
        "some avg10=1 avg60=2 avg300=3 total=18446744073709551616",
        "some avg10=1 avg60=2 avg300=3 total=4\nother avg10=1 avg60=2 avg300=3 total=4",
    ],
)
def test_what_is_no_pressure_file(text: str) -> None:
    with pytest.raises(FormatError):
        psi.pressure(text)
