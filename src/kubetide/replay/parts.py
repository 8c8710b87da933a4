"""Finished parts of a replay that was interrupted, so that the next one goes on from there.

A part is what one block came to under one policy. It is kept under a fingerprint of all that it depends on: the
recording, the policy, how it is counted, and the release; parts of anything else are left aside, never mixed in.
"""

import os
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np

from kubetide import __version__
from kubetide.errors import InvalidInput
from kubetide.replay.core.figures import SUMS
from kubetide.replay.core.spec import PolicySpec
from kubetide.stats.buckets import Floats

_TAIL = 65536
"""Bytes at the end of a recording that hold the checksums of all its members."""
_DAMAGED = "is damaged; delete it to begin anew"
_Known = dict[str, dict[str, tuple[float, float]]]
Part = tuple[list[str], Floats]
"""The workloads of a block (its services), and the sums of one policy."""
LOADS = -1
"""Stands for a block where a part is what all replica counts came to."""


def parts_file(recording: Path) -> Path:
    """Return where the parts of an interrupted replay are kept."""
    return recording.with_name(recording.name + ".parts")


def fingerprint(recording: Path, policy: PolicySpec, how: tuple[object, ...]) -> str:
    """Return what stands for all that a part depends on besides its block; `how` is how samples are counted."""
    found = sha256(f"{__version__} {how} {list(SUMS)}".encode())
    try:
        with recording.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            found.update(str(size).encode() + file.read())
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", subject=str(recording)) from error
    found.update(msgspec.json.encode(policy, order="deterministic"))
    return found.hexdigest()[:32]


def journal_file(recording: Path) -> Path:
    """Return where an interrupted search keeps what was tried."""
    return recording.with_name(recording.name + ".tuning")


class Journal:
    """What candidates of a search came to, by fingerprint and class of workloads."""

    def __init__(self, recording: Path, *, resume: bool) -> None:
        self.path = journal_file(recording)
        self._parts = parts_file(recording)
        self.known: _Known = {}
        if resume:
            try:
                self.known = msgspec.msgpack.decode(self.path.read_bytes(), type=_Known)
            except FileNotFoundError as error:
                raise InvalidInput("there is nothing to resume", subject=str(self.path), field="--resume") from error
            except (OSError, msgspec.DecodeError) as error:
                raise InvalidInput(_DAMAGED, subject=str(self.path), field="--resume") from error

    def keep(self) -> None:
        """Write it, whole or not at all; nothing where nothing was tried, not even a part of it."""
        if not self.known and not self._parts.exists():
            return
        unfinished = self.path.with_name(self.path.name + ".tmp")
        unfinished.write_bytes(msgspec.msgpack.encode(self.known))
        unfinished.replace(self.path)

    def forget(self) -> None:
        """Remove what an interrupted search has left: this one is finished."""
        self.path.unlink(missing_ok=True)


def keep(path: Path, parts: Mapping[tuple[int, str], Part]) -> None:
    """Write parts by block and fingerprint, whole or not at all."""
    arrays: dict[str, Floats] = {}
    for (block, mark), (names, sums) in parts.items():
        arrays[f"{block} {mark} sums"] = sums
        arrays[f"{block} {mark} names"] = np.frombuffer(msgspec.json.encode(names), dtype=np.uint8)
    unfinished = path.with_name(path.name + ".tmp")
    with unfinished.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    unfinished.replace(path)


def kept(path: Path) -> dict[tuple[int, str], Part]:
    """Return the parts of a file."""
    found: dict[tuple[int, str], Part] = {}
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for key in arrays.files:
                block, mark, what = key.split(" ")
                if what == "sums":
                    names = msgspec.json.decode(arrays[f"{block} {mark} names"].tobytes(), type=list[str])
                    found[int(block), mark] = (names, arrays[key])
    except FileNotFoundError as error:
        raise InvalidInput("there is nothing to resume", subject=str(path), field="--resume") from error
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, msgspec.DecodeError) as error:
        raise InvalidInput(_DAMAGED, subject=str(path), field="--resume") from error
    return found
