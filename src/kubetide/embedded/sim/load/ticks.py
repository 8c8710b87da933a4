"""The ticks of the load model. Those that nobody looks at are put off, and lived through together when somebody does.

A tick of the load model costs some hundred microseconds, most of it for calling and not for counting. While a cluster
is at rest (no memory that grows, no batch work, no disks, nobody who observes each tick) a tick changes demands and
counters and nothing else, so that it is enough to note when it was. Whoever reads a counter, asks for metrics, starts
or stops a process or changes a setting first lets the kernel catch up (`Kernel.catch_up`). What they find is the same,
bit for bit, as if every tick had been lived through at its time.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime

import numpy as np

from kubetide.embedded.sim.load.model import LoadModel
from kubetide.embedded.sim.metrics import KEPT_SCRAPES, SimMetrics
from kubetide.embedded.sim.node.kernel import Kernel
from kubetide.embedded.sim.node.stretches import live_through

_LONGEST = 240
"""So many ticks are put off at most."""
_NUMBERS = 300_000
"""So many demands are worked out at a time at most, which bounds the memory that catching up needs."""
_WORTH_IT = 10
"""From so many ticks on it is cheaper to work them out side by side."""


class Ticks:
    """Lets time pass for the model, and knows the ticks and scrapes that were put off."""

    def __init__(self, kernel: Kernel, model: LoadModel, metrics: SimMetrics) -> None:
        self._kernel = kernel
        self._model = model
        self._metrics = metrics
        self._ticks: list[float] = []
        self._scrapes: list[tuple[int, datetime]] = []
        """After which of the ticks a scrape is taken, and its date."""
        kernel.catch_up = self.catch_up

    async def run(
        self, every: float, *, elapsed: Callable[[], float], step: Callable[[float], None], observed: Callable[[], bool]
    ) -> None:
        """Tick for ever: by `step` where a tick cannot be put off, or is observed."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        next_scrape = 0.0
        number = 0
        while True:
            now = elapsed()
            scrape = now + 1e-6 >= next_scrape
            if scrape:
                next_scrape += self._metrics.interval
            if observed() or not self._put_off(now, scrape=scrape):
                step(now)
                if scrape:
                    self._metrics.scrape(now)
            number += 1
            await asyncio.sleep(max(0.0, begin + number * every - loop.time()))

    def _put_off(self, now: float, *, scrape: bool) -> bool:
        """Note a tick, and that a scrape follows it, for later; return False if it has to be lived through now."""
        if not self._ticks and not (self._kernel.at_rest and self._model.at_rest):
            return False
        if scrape and not self._metrics.down:
            if not self._metrics.up_to_date:
                return False
            self._scrapes.append((len(self._ticks), self._metrics.now()))
        self._ticks.append(now)
        if len(self._ticks) >= min(_LONGEST, _NUMBERS // self._kernel.size):
            self.catch_up()
        return True

    def catch_up(self) -> None:
        """Live through what was put off."""
        if not self._ticks:
            return
        ticks, self._ticks = self._ticks, []
        scrapes, self._scrapes = self._scrapes, []
        if len(ticks) < _WORTH_IT or not self._together(ticks, scrapes):
            self._one_by_one(ticks, dict(scrapes))

    def _one_by_one(self, ticks: list[float], scrapes: dict[int, datetime]) -> None:
        for index, now in enumerate(ticks):
            self._kernel.advance(now)
            self._model.tick(now)
            self._kernel.settle()
            if index in scrapes:
                self._metrics.take(now, scrapes[index])

    def _together(self, ticks: list[float], scrapes: list[tuple[int, datetime]]) -> bool:
        times = np.array(ticks)
        plan = self._model.plan(times)
        used = live_through(self._kernel, times, plan.demand)
        if used is None:
            return False
        self._model.follow(plan)
        self._metrics.pass_over(len(scrapes[:-KEPT_SCRAPES]))
        for index, at in scrapes[-KEPT_SCRAPES:]:
            self._metrics.take(ticks[index], at, used[index])
        return True
