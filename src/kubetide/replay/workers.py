"""Spreads independent pieces of work over processes of this machine, or over a Dask cluster.

A piece is a pure function of its item, so it may run anywhere, and again where a worker died. Results come as they
finish, with the place of their item: who merges them puts them in order, and the whole is the same for any number of
workers.
"""

import importlib
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from kubetide.errors import InvalidInput, Unavailable

Item = TypeVar("Item")
Result = TypeVar("Result")

_FRUITLESS = 3
"""Pools that broke one after the other without a single result: the work kills its workers."""
_CONNECT_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Who does the work."""

    processes: int = 1
    scheduler: str = ""
    """Address of a Dask scheduler, such as tcp://10.0.0.1:8786; its workers see the same files under the same names."""
    fresh: bool = False
    """Every piece gets a process of its own."""


def spread(work: Callable[[Item], Result], items: Sequence[Item], workers: Workers) -> Iterator[tuple[int, Result]]:
    """Yield the place and the result of every item, as they finish."""
    if workers.scheduler:
        yield from _on_dask(work, items, workers.scheduler)
    elif workers.processes <= 1 and not workers.fresh:
        for place, item in enumerate(items):
            yield place, work(item)
    else:
        yield from _in_processes(work, items, workers)


def _in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], workers: Workers
) -> Iterator[tuple[int, Result]]:
    left = dict(enumerate(items))
    fruitless = 0
    others = {child.pid for child in active_children()}
    while left:
        before = len(left)
        pool = ProcessPoolExecutor(
            min(workers.processes, len(left)),
            mp_context=get_context("spawn"),
            initializer=_leave_interrupts,
            max_tasks_per_child=1 if workers.fresh else None,
        )
        try:
            tasks = {pool.submit(work, item): place for place, item in left.items()}
            for task in as_completed(tasks):
                found = task.result()
                del left[tasks[task]]
                yield tasks[task], found
        except BrokenProcessPool as error:
            # A worker died (out of memory, or somebody ended it): what it had not finished is done again.
            fruitless = fruitless + 1 if len(left) == before else 0
            if fruitless >= _FRUITLESS:
                raise Unavailable(f"worker processes died {fruitless} times without finishing anything") from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if left:
                # Interrupted, or one worker died: nobody waits for what the others have begun.
                for child in active_children():
                    if child.pid not in others:
                        child.terminate()


def _leave_interrupts() -> None:
    """Ctrl-C is for the process that was started, which ends its workers in order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _on_dask(work: Callable[[Item], Result], items: Sequence[Item], address: str) -> Iterator[tuple[int, Result]]:
    distributed = _distributed()
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise Unavailable(f"the Dask scheduler at {address} does not answer: {error}") from error
    with client:
        # Not pure: equal items of two runs are two pieces of work, whatever the scheduler remembers.
        tasks = {client.submit(work, item, pure=False): place for place, item in enumerate(items)}
        for task, found in distributed.as_completed(list(tasks), loop=client.loop, with_results=True):
            yield tasks[task], found


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise InvalidInput("needs Dask: pip install 'kubetide[fleet]'", field="--scheduler") from error
