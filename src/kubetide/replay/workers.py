"""Spreads independent pieces of work over processes of this machine, or over a Dask cluster.

A piece is a pure function of its item, so it may run anywhere, and again where a worker died. Results come as they
finish, with the place of their item: who merges them puts them in order, and the whole is the same for any number of
workers.
"""

import importlib
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
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
    elif workers.fresh:
        yield from _in_own_processes(work, items, max(1, workers.processes))
    else:
        yield from _in_processes(work, items, workers.processes)


def _in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], processes: int
) -> Iterator[tuple[int, Result]]:
    left = dict(enumerate(items))
    fruitless = 0
    others = {child.pid for child in active_children()}
    while left:
        before = len(left)
        pool = ProcessPoolExecutor(
            min(processes, len(left)), mp_context=get_context("spawn"), initializer=_leave_interrupts
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
                raise _all_died(fruitless) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if left:
                # Interrupted, or one worker died: nobody waits for what the others have begun.
                for child in active_children():
                    if child.pid not in others:
                        child.terminate()


def _in_own_processes(
    work: Callable[[Item], Result], items: Sequence[Item], processes: int
) -> Iterator[tuple[int, Result]]:
    """As `_in_processes`, with a process for every piece. An executor that replaces its processes may never end."""
    context = get_context("spawn")
    left = deque(range(len(items)))
    running: dict[Connection, tuple[int, BaseProcess]] = {}
    fruitless = 0
    try:
        while left or running:
            while left and len(running) < processes:
                place = left.popleft()
                answer, to_answer = context.Pipe(duplex=False)
                child = context.Process(target=_do, args=(to_answer, work, items[place]), daemon=True)
                child.start()
                to_answer.close()
                running[answer] = place, child
            for answer in [each for each in wait(list(running)) if isinstance(each, Connection)]:
                place, worker = running.pop(answer)
                try:
                    error, found = answer.recv()
                except (EOFError, OSError) as died:  # before its answer, or in the middle of it
                    fruitless += 1
                    if fruitless >= _FRUITLESS:
                        raise _all_died(fruitless) from died
                    left.appendleft(place)
                    continue
                finally:
                    worker.join()
                if error is not None:
                    raise error
                fruitless = 0
                yield place, found
    finally:
        for _, begun in running.values():
            begun.terminate()


def _do(answer: Connection, work: Callable[[Item], Result], item: Item) -> None:
    _leave_interrupts()
    try:
        said: tuple[Exception | None, Result | None] = None, work(item)
    except Exception as error:  # noqa: BLE001 - whoever waits gets it
        said = error, None
    answer.send(said)


def _all_died(times: int) -> Unavailable:
    return Unavailable(f"worker processes died {times} times without finishing anything")


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
