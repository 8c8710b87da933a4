"""The manager: order at start, reverse order at stop, one failure for all."""

import asyncio
from datetime import timedelta

import pytest

from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.kube.control.manager import Manager, running


class Part:
    """A component that writes down what happens to it."""

    def __init__(self, name: str, book: list[str], *, ready_after: float = 0, fails_after: float | None = None) -> None:
        self.name = name
        self._book = book
        self._ready_after = ready_after
        self._fails_after = fails_after
        self._ready = False

    def ready(self) -> bool:
        return self._ready

    def healthy(self) -> bool:
        return True

    async def run(self) -> None:
        self._book.append(f"start {self.name}")
        try:
            await asyncio.sleep(self._ready_after)
            self._ready = True
            if self._fails_after is not None:
                await asyncio.sleep(self._fails_after)
                raise RuntimeError(f"{self.name} broke")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.5)
            self._book.append(f"stop {self.name}")


def test_components_start_in_order_and_stop_in_reverse() -> None:
    book: list[str] = []

    async def main() -> None:
        manager = Manager()
        manager.add(Part("informer", book, ready_after=10), wait_ready=True)
        manager.add(Part("controller", book))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(manager.run())
            await asyncio.sleep(5)
            assert book == ["start informer"]
            assert not manager.ready()
            await asyncio.sleep(10)
            assert manager.ready()
            task.cancel()
        assert not manager.ready()

    run_virtual(main())
    assert book == ["start informer", "start controller", "stop controller", "stop informer"]


def test_a_component_that_fails_takes_the_others_down_with_its_error() -> None:
    book: list[str] = []

    async def main() -> None:
        manager = Manager()
        manager.add(Part("steady", book))
        manager.add(Part("broken", book, fails_after=5))
        await manager.run()

    with pytest.raises(ExceptionGroup) as raised:
        run_virtual(main(), limit=timedelta(minutes=5))
    assert raised.group_contains(RuntimeError, match="broken broke")
    assert "stop steady" in book


def test_a_component_that_fails_before_it_is_ready_does_not_hang_the_start() -> None:
    async def main() -> None:
        manager = Manager()
        manager.add(Part("broken", [], ready_after=0, fails_after=1), wait_ready=True)
        manager.add(Part("never", []))
        await manager.run()

    with pytest.raises(ExceptionGroup):
        run_virtual(main(), limit=timedelta(minutes=5))


class Knows(Part):
    """A component that can explain pods."""

    def explain(self, kind: str, key: str) -> dict[str, object] | None:
        return {"key": key} if kind == "pod" else None


def test_explanations_come_from_the_component_that_knows() -> None:
    manager = Manager()
    manager.add(Part("silent", []))
    manager.add(Knows("wise", []))
    assert manager.explain("pod", "shop/web") == {"key": "shop/web"}
    assert manager.explain("hpa", "shop/web") is None


class Talks(Part):
    """A component that has something to tell."""

    def notes(self) -> list[str]:
        return ["stands by", "is bored"]


def test_what_components_have_to_tell_carries_their_names_once() -> None:
    inner, outer = Manager(name="components"), Manager()
    inner.add(Part("silent", []))
    inner.add(Talks("hpa", []))
    outer.add(inner)
    assert outer.notes() == ["hpa: stands by", "hpa: is bored"]


def test_components_run_beside_a_body_and_stop_with_it() -> None:
    async def main() -> None:
        book: list[str] = []
        async with running(Part("a", book), Part("b", book)):
            await asyncio.sleep(1)
            assert book == ["start a", "start b"]
        assert book == ["start a", "start b", "stop a", "stop b"]

    run_virtual(main())


def test_the_error_of_the_body_stays_as_it_is() -> None:
    async def main() -> None:
        async with running(Part("a", [])):
            await asyncio.sleep(1)
            raise ValueError("the body's own")

    with pytest.raises(ValueError, match="the body's own"):
        run_virtual(main())


def test_a_component_that_fails_ends_the_body_with_its_error() -> None:
    async def main() -> None:
        async with running(Part("a", [], fails_after=1)):
            await asyncio.sleep(1000)

    with pytest.raises(RuntimeError, match="a broke"):
        run_virtual(main())
