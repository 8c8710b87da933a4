"""Starts components in order, stops them in reverse, and fails as a whole when one of them fails.

Order matters twice: an informer is full before the controller that decides on it starts, and the controller has
stopped before the informer goes away. A component that ends by an error takes the process down with that error:
half a controller is worse than none, and a restart is a no-op.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from kubetide.log import get_logger

log = get_logger("manager")

READY_POLL_SECONDS = 0.05


class Component(Protocol):
    """Something that runs until cancelled."""

    @property
    def name(self) -> str:
        """What logs and health checks call it."""
        ...

    async def run(self) -> None:
        """Do the work until cancelled."""
        ...

    def ready(self) -> bool:
        """Whether it does its work already."""
        ...

    def healthy(self) -> bool:
        """Whether it should be left alone; False asks for a restart of the process."""
        ...


@runtime_checkable
class Explains(Protocol):
    """A component that can explain its decisions."""

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return the last decisions about an object with their traces, or None for what it does not know."""
        ...


@runtime_checkable
class Notes(Protocol):
    """A component with something to report beside its health, though it is healthy."""

    def notes(self) -> Sequence[str]:
        """Return a line for each thing that people should know; it is read by everybody, so it names no object."""
        ...


@dataclass(frozen=True, slots=True)
class _Entry:
    component: Component
    wait_ready: bool


class Manager:
    """A set of components that live and die together. It is a component itself, so managers nest."""

    def __init__(self, *, name: str = "manager", stop_timeout: timedelta = timedelta(seconds=30)) -> None:
        self.name = name
        self._entries: list[_Entry] = []
        self._stop_timeout = stop_timeout.total_seconds()
        self._started = False

    @property
    def components(self) -> Sequence[Component]:
        """The components in the order in which they start."""
        return [entry.component for entry in self._entries]

    def add(self, component: Component, *, wait_ready: bool = False) -> None:
        """Run `component` after those added before; with `wait_ready` the next ones wait until it is ready."""
        self._entries.append(_Entry(component, wait_ready))

    def ready(self) -> bool:
        """Whether all components have started and are ready."""
        return self._started and all(entry.component.ready() for entry in self._entries)

    def healthy(self) -> bool:
        """Whether all components are healthy."""
        return all(entry.component.healthy() for entry in self._entries)

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Ask one component after the other."""
        for component in self.components:
            if isinstance(component, Explains) and (answer := component.explain(kind, key)) is not None:
                return answer
        return None

    def notes(self) -> Sequence[str]:
        """Return what the components have to report, each line with the name of its component."""
        lines: list[str] = []
        for component in self.components:
            if isinstance(component, Manager):
                lines += component.notes()
            elif isinstance(component, Notes):
                lines += (f"{component.name}: {note}" for note in component.notes())
        return lines

    async def run(self) -> None:
        """Start in order and run until cancelled or until a component fails; then stop in reverse."""
        tasks: list[asyncio.Task[None]] = []
        async with asyncio.TaskGroup() as group:
            try:
                for entry in self._entries:
                    log.info("starting", component=entry.component.name)
                    tasks.append(group.create_task(entry.component.run(), name=entry.component.name))
                    if entry.wait_ready:
                        await _until_ready(entry.component, tasks[-1])
                self._started = True
                if tasks:
                    await asyncio.wait(tasks)
            finally:
                self._started = False
                await self._stop(tasks)

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in reversed(tasks):
            if task.done():
                continue
            if not task.cancelling():
                # A second cancellation would break into the clean-up of the first.
                task.cancel()
            _, pending = await asyncio.wait({task}, timeout=self._stop_timeout)
            if pending:
                log.warning("component does not stop", component=task.get_name())


async def _until_ready(component: Component, task: asyncio.Task[None]) -> None:
    while not component.ready() and not task.done():  # noqa: ASYNC110 - readiness may come from anywhere
        await asyncio.sleep(READY_POLL_SECONDS)


@asynccontextmanager
async def running(*components: Component) -> AsyncIterator[None]:
    """Run components beside the body of the context, and stop them with it.

    An error of the body stays as it is. A component that fails cancels the body, and its error comes out.
    """
    failure: Exception | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(component.run(), name=component.name) for component in components]
            try:
                yield
            except Exception as error:  # noqa: BLE001 - raised again below; inside the group it would be wrapped
                failure = error
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from failure
        raise
    if failure is not None:
        raise failure
