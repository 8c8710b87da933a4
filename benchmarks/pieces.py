"""Long benchmarks in pieces: a file keeps what was run, and the next call goes on from it."""

import json
import multiprocessing
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

Work = TypeVar("Work")
Outcome = TypeVar("Outcome")


def add_options(parser: ArgumentParser) -> None:
    """Add the options that `play_all` reads."""
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--into", type=Path, help="keep runs in this file, and go on from those that it holds")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after this time")


def known(given: Namespace, kind: Callable[..., Outcome]) -> list[Outcome]:
    """Return the outcomes that the file of `--into` holds."""
    path: Path | None = given.into
    return [kind(**json.loads(line)) for line in path.read_text().splitlines()] if path and path.exists() else []


def play_all(play: Callable[[Work], Any], wanted: Sequence[Work], given: Namespace) -> Iterator[Any]:
    """Yield the outcome (a dataclass) of each piece of work, once `--into` holds it; stop when time is up."""
    ends = time.monotonic() + given.seconds
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        for first in range(0, len(wanted), given.workers):
            if time.monotonic() >= ends:
                return
            for one in pool.map(play, wanted[first : first + given.workers], chunksize=1):
                if given.into:
                    with given.into.open("a") as file:
                        file.write(json.dumps(asdict(one)) + "\n")
                yield one
