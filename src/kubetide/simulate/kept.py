"""Finished runs of a simulation that was interrupted, so that the next one goes on from there.

A run is kept under a fingerprint of all that it depends on: scenario and policy, seed, length, SLO, and the release.
Runs of anything else are left aside.
"""

from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np

from kubetide import __version__
from kubetide.embedded.sim.load.scenario import Scenario
from kubetide.errors import InvalidInput
from kubetide.simulate.core.counting import Run
from kubetide.simulate.variants import Variant


class _Kept(msgspec.Struct, frozen=True):
    """A run as it is written: series are bytes of little-endian floats."""

    policy: str
    seed: int
    start: float
    series: dict[str, dict[str, bytes]]
    oom_kills: dict[str, tuple[float, ...]]
    evictions: int
    digest: str


def fingerprint(scenario: Scenario, variant: Variant, seed: int, length: timedelta, slo: timedelta) -> str:
    """Return what stands for all that a run depends on."""
    content = (__version__, scenario, variant, seed, length.total_seconds(), slo.total_seconds())
    return sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:32]


def keep(path: Path, runs: Mapping[str, Run]) -> None:
    """Write runs by their fingerprint, whole or not at all."""
    content = {
        key: _Kept(
            policy=run.policy,
            seed=run.seed,
            start=run.start,
            series={
                name: {column: values.astype("<f8").tobytes() for column, values in columns.items()}
                for name, columns in run.series.items()
            },
            oom_kills={name: tuple(times) for name, times in run.oom_kills.items()},
            evictions=run.evictions,
            digest=run.digest,
        )
        for key, run in runs.items()
    }
    unfinished = path.with_name(path.name + ".tmp")
    try:
        unfinished.write_bytes(msgspec.msgpack.encode(content))
        unfinished.replace(path)
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror}", subject=str(path)) from error


def kept(path: Path) -> dict[str, Run]:
    """Return the runs of a file."""
    try:
        found = msgspec.msgpack.decode(path.read_bytes(), type=dict[str, _Kept])
    except FileNotFoundError as error:
        raise InvalidInput("there is nothing to resume", subject=str(path), field="--resume") from error
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput("is damaged; delete it to begin anew", subject=str(path), field="--resume") from error
    return {
        key: Run(
            policy=each.policy,
            seed=each.seed,
            start=each.start,
            series={
                name: {column: np.frombuffer(values, dtype="<f8") for column, values in columns.items()}
                for name, columns in each.series.items()
            },
            oom_kills=each.oom_kills,
            evictions=each.evictions,
            digest=each.digest,
        )
        for key, each in found.items()
    }
