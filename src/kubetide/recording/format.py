"""The format of a recording: which tables and columns there are, and which versions can be read.

A `.tide` file is a ZIP archive without compression of its own. In it are `manifest.json` and one Parquet file per
table: any tool that reads Parquet reads a recording after `unzip`. Members are stored as they are, so a reader maps
the file into memory and decodes the row groups that it needs, nothing else.

    version MAJOR.MINOR
    MINOR grows when tables or columns are added: readers ignore what they do not know and take what is missing as null
    MAJOR grows when what is there changes its meaning: a reader refuses another one

The reference page is docs/reference/recording.md.
"""

import zlib
from collections.abc import Mapping
from typing import Final

import msgspec

from kubetide.errors import InvalidInput

FORMAT: Final = "kubetide-recording"
MAJOR: Final = 1
MINOR: Final = 1
MANIFEST: Final = "manifest.json"

TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "containers": {
        "container_id": "int32",
        "block": "int32",
        "namespace": "string",
        "kind": "string",
        "workload": "string",
        "pod": "string",
        "container": "string",
        "since": "time",
    },
    "usage": {
        "container_id": "int32",
        "time": "time",
        "cpu_micros": "int32",
        "memory_bytes": "int64",
        "throttled": "float32",
        "window_seconds": "float32",
        "seen": "time",
    },
    "sizes": {
        "container_id": "int32",
        "time": "time",
        "cpu_request_millis": "int64",
        "memory_request_bytes": "int64",
        "cpu_limit_millis": "int64",
        "memory_limit_bytes": "int64",
    },
    "replicas": {
        "namespace": "string",
        "kind": "string",
        "workload": "string",
        "time": "time",
        "wanted": "int32",
        "ready": "int32",
    },
    "load": {
        "namespace": "string",
        "workload": "string",
        "metric": "string",
        "time": "time",
        "value": "float64",
    },
    "oom_kills": {"container_id": "int32", "time": "time", "seen": "time", "memory_bytes": "int64"},
    "objects": {
        "time": "time",
        "event": "string",
        "kind": "string",
        "namespace": "string",
        "name": "string",
        "object": "string",
    },
    "nodes": {"node": "string", "time": "time", "cpu_millis": "int64", "memory_bytes": "int64"},
    "decisions": {
        "time": "time",
        "kind": "string",
        "namespace": "string",
        "name": "string",
        "decision": "string",
    },
}
"""Columns by table. `time` is UTC with microseconds; texts are UTF-8; every column may hold nulls but ids and times."""

BLOCK_CONTAINERS: Final = 1024
"""Containers of one block: all containers of a workload are in the same block, and a block is replayed on its own."""
CHUNK_SECONDS: Final = 86400
"""A row group holds one block for at most this long."""


_LONGEST_SECONDS: Final = 100 * 366 * 86400
"""Every day of a recording is looked at, whether there is anything in it or not."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of which nothing is known, and why."""

    start: int
    end: int
    reason: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording says about itself; times are UTC seconds."""

    format: str = FORMAT
    version: str = f"{MAJOR}.{MINOR}"
    writer: str = ""
    source: str = ""
    """Where it comes from: prometheus, live, csv, pack."""
    interval_seconds: int = 300
    """The distance of samples that the source aims at."""
    period_seconds: int = 86400
    """What replays count as one container-period, unless told otherwise."""
    warmup_periods: int = 0
    """Periods before counting begins, unless told otherwise."""
    start: int = 0
    end: int = 0
    anonymized: bool = False
    pod_cores: float = 1.0
    """Cores of one pod, where `load` is in cores."""
    rows: dict[str, int] = {}
    gaps: list[Gap] = []
    notes: dict[str, int] = {}
    """What was left out and how often, by reason."""
    footers: dict[str, int] = {}
    """CRC-32 of the footer of each table's Parquet file, since 1.1: Parquet has checksums for its pages alone."""


def read_manifest(body: bytes, subject: str) -> Manifest:
    """Return the manifest of a recording that this version can read."""
    try:
        head = msgspec.json.decode(body, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the manifest cannot be read: {error}", subject=subject) from error
    if head.format != FORMAT:
        raise InvalidInput(f"{head.format!r} is not {FORMAT!r}", subject=subject, field="format")
    major = head.version.partition(".")[0]
    if not major.isdecimal():
        raise InvalidInput(f"{head.version!r} is not a version", subject=subject, field="version")
    if int(major) != MAJOR:
        raise InvalidInput(f"is format {head.version}, this kubetide reads {MAJOR}.x", subject=subject, field="version")
    try:
        found = msgspec.json.decode(body, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the manifest cannot be read: {error}", subject=subject) from error
    for name in ("interval_seconds", "period_seconds"):
        if getattr(found, name) < 1:
            raise InvalidInput("must be at least 1", subject=subject, field=f"{MANIFEST} {name}")
    if not (found.start >= 0 and found.end - found.start <= _LONGEST_SECONDS):
        wrong = f"goes from second {found.start} to {found.end}"
        raise InvalidInput(wrong, subject=subject, field=f"{MANIFEST} start")
    return found


def footer_checksum(content: memoryview) -> int | None:
    """Return the CRC-32 of the footer of a Parquet file, its length and mark included; None where there is none."""
    length = int.from_bytes(content[-8:-4], "little") + 8
    return zlib.crc32(content[-length:]) if bytes(content[-4:]) == b"PAR1" and length <= len(content) else None


class _Head(msgspec.Struct, frozen=True):
    """The part that every version has."""

    format: str = ""
    version: str = ""
