"""CPU files, the list of processors, /proc/stat, /proc/<pid>/stat."""

import pytest

from kubetide.node.core.formats import cpu, processors
from kubetide.node.core.formats.numbers import FormatError
from kubetide.node.core.formats.storage import pcie_root

HEADER = "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE\n"


def test_busy_is_user_nice_system_irq_and_softirq() -> None:
    text = "intr 1\ncpu0 9 9 9 9 9 9 9 9\ncpu  1 2 4 1000 1000 8 16 1000 1000 1000\n"
    assert cpu.busy_ticks(text) == 1 + 2 + 4 + 8 + 16


@pytest.mark.parametrize("text", ["", "cpu0 1 2 3 4 5 6 7 8\n", "cpu 1 2 3 4 5 6\n", "cpu 1 2 x 4 5 6 7\n"])
def test_without_a_readable_summary_line_there_are_no_ticks(text: str) -> None:
    with pytest.raises(FormatError):
        cpu.busy_ticks(text)


@pytest.mark.parametrize("line", ["nr_periods 1", "nr_throttled 2", "throttled_usec 3"])
def test_all_throttling_counters_must_be_there(line: str) -> None:
    text = "nr_periods 1\nnr_throttled 2\nthrottled_usec 3\n"
    assert cpu.throttling(text, 2) == cpu.Throttling(1, 2, 3000)
    with pytest.raises(FormatError):
        cpu.throttling(text.replace(line, ""), 2)
    with pytest.raises(FormatError):
        cpu.throttling(text, 1)


@pytest.mark.parametrize(
    ("current", "previous", "ratio"),
    [((200, 40), (100, 20), 0.2), ((50, 10), (100, 20), 0.0), ((100, 20), (100, 10), 0.0), ((100, 5), (90, 10), -0.5)],
)
def test_the_throttled_ratio(current: tuple[int, int], previous: tuple[int, int], ratio: float) -> None:
    assert cpu.throttled_ratio(cpu.Throttling(*current, 0), cpu.Throttling(*previous, 0)) == ratio


def test_cpu_max_has_two_fields_and_max_is_no_limit() -> None:
    assert (cpu.quota_v2("max 100000\n"), cpu.period_v2("max 100000\n")) == (-1, 100000)
    assert cpu.period_v2("bad 100000") == 100000
    with pytest.raises(FormatError):
        cpu.quota_v2("bad 100000")
    for text in ("100000", "", "1 2 3"):
        with pytest.raises(FormatError):
            cpu.period_v2(text)


def test_the_model_is_the_text_between_the_first_two_colons() -> None:
    text = "model name\nmodel name\t: CPU @ 2.50GHz: x\nmodel name : Second\nvendor_id : GenuineIntel\n"
    assert cpu.cpu_model(text) == cpu.CpuModel("CPU @ 2.50GHz", "GenuineIntel")
    assert cpu.cpu_model("Model Name: A\n").model == "A"
    assert cpu.cpu_model("processor : 0\n") == cpu.CpuModel("unknown", "unknown")


@pytest.mark.parametrize(
    ("column", "expected"),
    [("3:4:5:1", ("3", 1)), ("3:4:5", ("3", 0)), ("3:4", None), ("3:4:5:-", None), ("-", None), ("", None)],
)
def test_the_cache_column(column: str, expected: tuple[str, int] | None) -> None:
    if expected is not None:
        assert processors.cache_column(column) == expected
        return
    with pytest.raises(FormatError):
        processors.cache_column(column)


def test_on_arm_a_lone_dash_is_the_first_cache() -> None:
    assert processors.cache_column("-", arm64=True) == ("0", 0)


def test_lines_that_are_no_usable_processor_are_left_out_and_the_rest_is_ordered() -> None:
    text = HEADER + "3 1 1 3 3:3:3:1 yes 3000\n9 - - - - no\n2 x 0 0 0:0:0:0 ja\n0 0 0 0 0:0:0 yes\n1 0 0 1 1:1 yes\n"
    found = processors.lscpu(text)
    assert [(one.cpu, one.node, one.l3, one.online) for one in found] == [
        (0, 0, 0, "yes"),
        (2, 0, 0, "ja"),
        (3, 1, 1, "yes"),
    ]
    total = processors.index(found)
    assert (total.count, sorted(total.by_core), sorted(total.by_node)) == (3, [0, 3], [0, 1])


@pytest.mark.parametrize("text", ["", HEADER, "garbage\n"])
def test_no_processor_at_all_is_an_error(text: str) -> None:
    with pytest.raises(FormatError):
        processors.lscpu(text)


def test_the_root_complex_is_the_first_in_the_path() -> None:
    assert pcie_root("/sys/devices/pci0000:3a/0000:3a:00.0/pci0001:00") == "pci0000:3a"
    assert pcie_root("/sys/devices/virtual") == ""


def test_usage_of_v2_is_in_microseconds() -> None:
    assert cpu.usage_nanos_v2("usage_usec 90000\nuser_usec 1\n") == 90_000_000
    with pytest.raises(FormatError):
        cpu.usage_nanos_v2("user_usec 1\n")
