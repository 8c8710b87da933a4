"""Cache and memory bandwidth by class: L3 way masks, MB values, schemata texts.

    ways = bits of the mask;  first = ceil(ways x start %), last = ceil(ways x end %);  mask = 2^last - 2^first
    MB:  Intel rounds up to tens of percent, AMD scales to 160 with 2048 for "no limit"

Both edges round up, so neighbouring ranges never overlap; a range inside one way would be empty and is refused.
"""

from kubetide.errors import InvalidInput
from kubetide.node.core.formats.cpu import cpu_flags
from kubetide.node.core.formats.numbers import ceil_div, is_index

INTEL_VENDOR = "GenuineIntel"
AMD_VENDOR = "AuthenticAMD"
AMD_UNLIMITED = 2048
AMD_SCALE = 160

Schemata = dict[str, dict[str, str]]

#: The resources that resctrl divides, by the name of their line.
RESOURCES = frozenset({"L2", "L2CODE", "L2DATA", "L3", "L3CODE", "L3DATA", "MB", "SMBA"})


def l3_mask(cbm: int, start_percent: int, end_percent: int) -> str:
    """Return the hex mask of a percent range of the cache ways."""
    if cbm <= 0 or cbm & (cbm + 1):
        raise InvalidInput(f"cache mask {cbm:x} is not a run of ones from bit 0", field="cbm_mask")
    if not 0 <= start_percent < end_percent <= 100:
        raise InvalidInput(f"range {start_percent}..{end_percent} is not within 0..100", field="catRangeEndPercent")
    ways = cbm.bit_length()
    first = ceil_div(ways * start_percent, 100)
    last = ceil_div(ways * end_percent, 100)
    if first == last:
        raise InvalidInput(
            f"range {start_percent}..{end_percent} contains no whole way of {ways}", field="catRangeEndPercent"
        )
    return f"{(1 << last) - (1 << first):x}"


def mba_value(percent: int | None, vendor: str) -> str:
    """Return the MB value of a bandwidth percent; empty means leave the group alone."""
    if percent is None or percent <= 0 or percent > 100:
        return ""
    if vendor == AMD_VENDOR:
        return str(AMD_UNLIMITED if percent == 100 else AMD_SCALE * percent // 100)
    return str(ceil_div(percent, 10) * 10)


def parse_schemata(text: str) -> Schemata:
    """Split schemata text into {resource: {cache id: raw value}}; lines and parts that are none are skipped."""
    result: Schemata = {}
    for line in text.splitlines():
        name, separator, rest = line.strip().partition(":")
        resource = name.strip()
        if not separator or resource not in RESOURCES:
            continue
        values: dict[str, str] = {}
        for part in rest.split(";"):
            cache_id, equals, value = part.strip().partition("=")
            if equals:
                values[cache_id.strip()] = value.strip()
        result[resource] = values
    return result


def schemata_line(name: str, cache_ids: list[int], value: str) -> str:
    """Return one schemata line in the exact text that is written."""
    return f"{name}:" + "".join(f"{cache_id}={value};" for cache_id in sorted(cache_ids)) + "\n"


def cache_ids_of(schemata: Schemata, name: str = "L3") -> list[int]:
    """Return the ids of one line in ascending order."""
    return sorted(int(cache_id) for cache_id in schemata.get(name, {}) if is_index(cache_id))


def check_root(text: str) -> list[int]:
    """Return the cache ids of a root schemata, which must have L3 and MB lines with as many ids each."""
    schemata = parse_schemata(text)
    l3, mb = cache_ids_of(schemata, "L3"), cache_ids_of(schemata, "MB")
    if not l3 or not mb or len(l3) != len(mb):
        raise InvalidInput(f"root schemata have {len(l3)} L3 and {len(mb)} MB ids", field="schemata")
    return l3


def parse_tasks(text: str) -> list[int]:
    """Return the thread ids of a tasks file in ascending order."""
    try:
        return sorted(int(line) for line in text.split())
    except ValueError as error:
        raise InvalidInput("a tasks file holds something else than ids", field="tasks") from error


def cpu_support(cpuinfo: str) -> tuple[bool, bool]:
    """Return whether the CPU has L3 allocation and bandwidth allocation."""
    flags = cpu_flags(cpuinfo)
    return "cat_l3" in flags, "mba" in flags
