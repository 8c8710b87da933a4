"""Writes the scale of a target, again and again while others write the object too.

A conflict says that the object changed since it was read, by a rollout or a status update more often than by anybody
who wanted another count. So the scale is read again and the count that was decided is written, up to five times in
all. If the new read shows a count that is neither the old one nor ours, somebody else has decided: the next
reconcile will see it.

A scale that was followed and not read may be a moment old: where it is, nothing is written, and all is decided anew.
"""

import asyncio
import random
from typing import Protocol

from kubetide.errors import KubetideError
from kubetide.kube.client.errors import Conflict, NotFound
from kubetide.kube.scale import ScaleTarget

ATTEMPTS = 5
PAUSE_SECONDS = 0.01
JITTER = 0.1


class Scales(Protocol):
    """Where scales are read and written."""

    async def set(self, target: ScaleTarget, replicas: int, *, field_manager: str | None = None) -> ScaleTarget:
        """Write the replicas, if the scale is still what was read; raises Conflict if not."""
        ...

    async def refresh(self, target: ScaleTarget) -> ScaleTarget:
        """Read the same scale again."""
        ...


class ScaleTaken(KubetideError):
    """Somebody else set another count while ours was being written."""


class ScaleOutdated(KubetideError):
    """A scale that was followed has changed since, or is gone."""


class ScaleWriter:
    """Sets counts; `respect_others` gives up where somebody else has set another one meanwhile."""

    def __init__(self, scales: Scales, rng: random.Random, *, field_manager: str, respect_others: bool = True) -> None:
        self._scales = scales
        self._rng = rng
        self._field_manager = field_manager
        self._respect_others = respect_others

    async def write(self, target: ScaleTarget, replicas: int, *, followed: bool = False) -> None:
        """Set the count of a target; raise what the last attempt failed with, or ScaleOutdated if it was followed."""
        expected = (target.spec_replicas, replicas)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._scales.set(target, replicas, field_manager=self._field_manager)
            except (Conflict, NotFound) as error:
                if followed:
                    raise ScaleOutdated(f"{target.name} is no longer what was seen of it") from error
                if attempt == ATTEMPTS or isinstance(error, NotFound):
                    raise
            else:
                return
            await asyncio.sleep(PAUSE_SECONDS * (1.0 + self._rng.uniform(0.0, JITTER)))
            target = await self._again(target)
            if self._respect_others and target.spec_replicas not in expected:
                raise ScaleTaken(
                    f"somebody else set {target.spec_replicas} replicas while {replicas} were being written"
                )

    async def _again(self, target: ScaleTarget) -> ScaleTarget:
        try:
            return await self._scales.refresh(target)
        except KubetideError:
            # The attempt with the old version fails too, unless the conflict was no lasting one.
            return target
