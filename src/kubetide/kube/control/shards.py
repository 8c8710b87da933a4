"""Sharing the work: this replica's Lease, the ranges it owns, and a fence that knows the range of every write.

The rule is pure (`kube.control.core`). `ShardMembership` stands where `Leadership` stands with one leader: `run` works
while the replica is a member, `writer` sends a write only while this replica owns the range of its path. Whether it
does is a question of time, asked at the moment of the write, as with one leader.

The replicas hold the leader's Lease together, under one name. So a replica that wants to lead alone (another setting,
in the middle of a rollout or a rollback) waits until all of them are gone, and they for it; so do replicas that split
other namespaces. They wait for fixed shards (`--shard=0/3`, each with a lease of its own) as well.

A limit of the whole cluster is shared as slots (`core.slots`), which are owned like ranges. `share` says how many of
them this replica may use.
"""

import asyncio
import random
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

from kubetide.api.objects.core import Lease
from kubetide.api.objects.scheme import LEASES
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.control.announcement import announced_in
from kubetide.kube.control.core.membership import DRIFT_SECONDS, Member, Shares, claims_of, claims_texts, see, shares
from kubetide.kube.control.core.ranges import ALL_RANGES, NO_RANGES, WHOLE_NAMESPACES, Division
from kubetide.kube.control.core.slots import TURN_SECONDS, Share
from kubetide.kube.control.leader_election import LeaderElector
from kubetide.kube.control.lease import Sighting, claim, released
from kubetide.kube.control.lease import see as sight
from kubetide.kube.control.range_fence import RangeFence
from kubetide.log import get_logger

log = get_logger("shards")

GROUP_LABEL = "kubetide.io/shards"
CLAIMS = "kubetide.io/shard-ranges"
SLOT_CLAIMS = "kubetide.io/shard-slots"
TURN = "kubetide.io/shard-turn"
JITTER = (0.9, 1.1)
FORGET_SECONDS = 600.0
"""How long the Lease of a member that is gone stays, for people to see."""
LEAVE_SECONDS = 10.0
"""How long a replica that stops may take to write what is to be written about what it owned."""


def together(group: str, split: Collection[str] = ()) -> str:
    """Return the name under which the replicas hold the leader's Lease; who divides otherwise has another one."""
    return f"shards of {group}" + (f", split: {' '.join(sorted(split))}" if split else "")


def is_together(holder: str, group: str) -> bool:
    """Return whether replicas hold the leader's Lease together, however they divide the work."""
    return holder == together(group) or holder.startswith(f"{together(group)}, ")


class RangeOwner(Protocol):
    """Whoever does the work on ranges."""

    async def take_ranges(self, ranges: frozenset[int]) -> None:
        """Begin to work on ranges."""
        ...

    async def give_up_ranges(self, ranges: frozenset[int]) -> None:
        """End the work on ranges, with all that is to be written; nothing may be written afterwards."""
        ...


class ShardMembership:
    """One replica of many that share the work. Times as those of leader election."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        group: str,
        namespace: str,
        rng: random.Random,
        identity: str = "",
        lease_duration: timedelta = timedelta(seconds=15),
        renew_deadline: timedelta = timedelta(seconds=10),
        retry_period: timedelta = timedelta(seconds=2),
        slots: int = 0,
        slot_rest: timedelta = timedelta(0),
        division: Division = WHOLE_NAMESPACES,
    ) -> None:
        """`slots` share a limit; one that was taken over rests for `slot_rest`, as its last owner may have used it."""
        self.group, self.division = group, division
        # Of two processes that were given one name each needs a Lease of its own.
        self.identity = f"{identity or socket.gethostname()}-{rng.getrandbits(64):016x}"
        self.lease_name = re.sub(r"[^a-z0-9-]+", "-", f"{group}-{self.identity}".lower())[-200:].lstrip("-")
        self.lease = f"{namespace}/{self.lease_name}"
        self.live = 0
        """Members that were alive when the Leases were last read."""
        self.handed_over = 0
        """Ranges taken, given up and lost since the start."""
        self.owner: RangeOwner | None = None
        self.annotations: Callable[[], Mapping[str, str]] = dict
        """What this replica says of itself in its Lease, asked at every renewal."""
        self._fence = RangeFence(client.transport, self._may_write, division)
        self.writer = client.over(self._fence)
        """The client to write with: what it sends stops the moment a range could have passed on."""
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._duration = lease_duration.total_seconds()
        self._deadline = renew_deadline.total_seconds()
        self._period = retry_period.total_seconds()
        self._rng = rng
        self._together = LeaderElector(
            client,
            clock=clock,
            lease_name=group,
            namespace=namespace,
            identity=together(group, division.split),
            lease_duration=lease_duration,
            renew_deadline=renew_deadline,
            retry_period=retry_period,
            rng=rng,
            shared=True,
        )
        self._slots = slots
        self._slot_rest = slot_rest.total_seconds() + (DRIFT_SECONDS if slot_rest else 0.0)
        self._slots_since: dict[int, float] = {}
        self._turn, self._turned_at = 0, clock.monotonic()
        self._members: tuple[Member, ...] = ()
        self._mine: Lease | None = None
        self._renewed_at: float | None = None
        self._held = NO_RANGES  # this replica may write to them
        self._claims = NO_RANGES  # what its Lease names, all that is held included
        self._refusal = ""
        self._log = log.bind(lease=self.lease)
        client.announce(self)

    @property
    def is_leader(self) -> bool:
        """Whether this replica is a member right now, and may act on what it owns."""
        renewed_at = self._renewed_at
        fresh = renewed_at is not None and self._clock.monotonic() < renewed_at + self._deadline
        return fresh and self._together.is_leader

    @property
    def held(self) -> frozenset[int]:
        """The ranges that this replica may act on right now."""
        return self._held & ALL_RANGES if self.is_leader else NO_RANGES

    def share(self) -> Share:
        """Return which part of the shared limit this replica may use right now."""
        if not self.is_leader:
            return Share(0, self._slots)
        rests = [since + self._slot_rest - self._clock.monotonic() for since in self._slots_since.values()]
        later = [rest for rest in rests if rest > 0]
        return Share(len(rests) - len(later), self._slots, min(later, default=None))

    def _may_write(self, number: int) -> bool:
        return number in self._held and self.is_leader

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run `lead` while this replica is a member, and hand ranges to the owner; leave when cancelled."""
        await self._until_no_fixed_shards()
        await self._together.run(lambda: self._take_part(lead))

    async def _until_no_fixed_shards(self) -> None:
        """Wait while somebody holds the lease of a fixed shard of this component: it would not know of ours."""
        fixed = re.compile(rf"{re.escape(self.group)}(?:-uid)?-[0-9]+-of-[0-9]+")
        seen: dict[str, Sighting] = {}
        while True:
            holders: list[str] = []
            try:
                for one in (await self._client.list(LEASES, namespace=self._namespace)).items:
                    name, spec, now = one.metadata.name, one.spec, self._clock.monotonic()
                    if fixed.fullmatch(name) and spec.holder_identity:
                        found = seen[name] = sight(seen.get(name), one.metadata.resource_version, spec, now=now)
                        if now < found.at + (spec.lease_duration_seconds or self._duration) + DRIFT_SECONDS:
                            holders.append(name)
            except KubetideError as error:
                self._log.warning("cannot read the leases of fixed shards", error=str(error))
                holders.append("")
            if not holders:
                return
            if any(holders):
                self._log.info("fixed shards are still at work: stop them first", leases=holders)
            await asyncio.sleep(self._period * self._rng.uniform(*JITTER))

    async def _take_part(self, lead: Callable[[], Awaitable[None]]) -> None:
        self._lose()
        async with asyncio.TaskGroup() as group:
            work = group.create_task(_as_coroutine(lead), name=f"shards/{self.group}")
            renewing = group.create_task(self._renew_forever())
            try:
                await asyncio.wait({work, renewing}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                # Renewing goes on while the work winds down, so that ranges are not lost under it.
                # Work that failed is in no state to be written down.
                with suppress(TimeoutError):
                    async with asyncio.timeout(LEAVE_SECONDS):
                        await self._end_work(NO_RANGES if work.done() else self.held)
                if not work.cancelling():
                    work.cancel()
                await asyncio.wait({work})
                renewing.cancel()
                await asyncio.wait({renewing})
                await self._leave()

    async def _renew_forever(self) -> None:
        async with asyncio.TaskGroup() as group:
            moving: asyncio.Task[None] | None = None
            while True:
                found = await self._attempt()
                if self._held and not self._renewed_in_time():
                    self._log.warning("lost all ranges: the lease could not be renewed in time", ranges=len(self._held))
                    lost = self._lose()
                    if moving is not None:
                        moving.cancel()
                        await asyncio.wait({moving})
                    moving = group.create_task(self._end_work(lost))
                elif found is not None and self.is_leader and (moving is None or moving.done()):
                    giving, taking = self._held - found.wanted, (self._claims & found.free) - self._held
                    # Held from here on: what is claimed and not held would leave the claim if somebody joined.
                    self._held |= taking
                    self._slots_since |= dict.fromkeys(taking - ALL_RANGES, self._clock.monotonic())
                    if giving or taking:
                        moving = group.create_task(self._move(giving, taking))
                await asyncio.sleep(self._period * self._rng.uniform(*JITTER))

    def _renewed_in_time(self) -> bool:
        return self._renewed_at is not None and self._clock.monotonic() < self._renewed_at + self._deadline

    def _lose(self) -> frozenset[int]:
        """Forget all ranges, as others may have taken them by now; return what was held."""
        lost, self._held, self._claims, self._renewed_at = self._held & ALL_RANGES, NO_RANGES, NO_RANGES, None
        self._slots_since.clear()
        self.handed_over += len(lost)
        return lost

    async def _attempt(self) -> Shares | None:
        """Renew once; return what this replica should own by the Leases as they are after it, or None if it failed."""
        try:
            async with asyncio.timeout(self._deadline):
                found = await self._renew()
        except (KubetideError, TimeoutError) as error:
            refusal = str(error) or "no answer in time"
            if refusal != self._refusal:  # the same words every two seconds help nobody
                self._log.warning("cannot read or write the leases of members", error=refusal)
            self._refusal = refusal
            return None
        self._refusal = ""
        return found

    async def _renew(self) -> Shares | None:
        found = await self._look()
        if self._held and (self._mine is None or not self._renewed_in_time()):
            # All is lost, which comes before anything new. Of a lease that was deleted nobody could read what is owned.
            self._renewed_at = None
            return None
        claims = self._held | (self._claims & found.wanted) | found.free
        before, sent = self._renewed_at, self._clock.monotonic()
        # What may have been written counts as claimed; it is taken only after an answer.
        self._claims |= claims
        await self._write(claims)
        if before is not None and self._clock.monotonic() >= before + self._deadline:
            self._renewed_at = None  # the answer came too late: others may have judged this replica dead
            return None
        self._claims, self._renewed_at = claims, sent
        # Of two that claim a range the later one has to see it: read again after the write.
        return found if claims == self._held else await self._look()

    async def _look(self) -> Shares:
        # Who is alive is judged at the time of the question, what is new was there at the latest by the answer: an
        # answer that took its time must not make anyone look dead who has renewed meanwhile.
        now = self._clock.monotonic()
        listing = await self._client.list(
            LEASES, namespace=self._namespace, label_selector=f"{GROUP_LABEL}={self.group}"
        )
        seen_at = self._clock.monotonic()
        self._mine = next((one for one in listing.items if one.metadata.name == self.lease_name), None)
        self._members = see(self._members, [_member(one, seen_at, self._duration) for one in listing.items], now=now)
        found = shares(self.lease_name, self._members, now=now, slots=self._slots, turn=self._turn)
        self.live = found.live
        self._count_turns(found, now)
        await self._forget_gone(now)
        return found

    def _count_turns(self, found: Shares, now: float) -> None:
        """Let the next members have the slots once it is time; nobody's clock is compared with another's."""
        over = now - self._turned_at >= TURN_SECONDS and self.live > self._slots > 0
        if found.turn > self._turn or over:
            self._turn, self._turned_at = max(found.turn, self._turn + over), now

    async def _forget_gone(self, now: float) -> None:
        for member in self._members:
            if member.lease != self.lease_name and now > member.seen_at + member.duration + FORGET_SECONDS:
                try:
                    await self._client.delete(
                        LEASES, member.lease, namespace=self._namespace, resource_version=member.version
                    )
                except KubetideError as error:
                    self._log.debug("cannot delete the lease of a member that is gone", error=str(error))

    async def _write(self, claims: frozenset[int], *, leave: bool = False) -> None:
        mine, now = self._mine, self._clock.now()
        if mine is None:
            spec = claim(None, self.identity, duration=self._duration, now=now)
        elif leave:
            spec = released(mine.spec, now=now)
        else:
            spec = claim(mine.spec, self.identity, duration=self._duration, now=now)
        ranges, slots = claims_texts(claims)
        of_slots = {SLOT_CLAIMS: slots, TURN: str(self._turn)} if self._slots else {}
        metadata: dict[str, Any] = {
            "name": self.lease_name,
            "namespace": self._namespace,
            "labels": {GROUP_LABEL: self.group},
            "annotations": {CLAIMS: ranges, **of_slots},
        }
        if mine is not None:
            # A request that was thought lost and arrives late must not bring an old claim back.
            metadata["resourceVersion"] = mine.metadata.resource_version
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": announced_in(metadata, self.annotations()),
            "spec": spec,
        }
        if mine is None:
            await self._client.create(LEASES, body, namespace=self._namespace)
        else:
            await self._client.update(LEASES, self.lease_name, body, namespace=self._namespace)

    async def _move(self, giving: frozenset[int], taking: frozenset[int]) -> None:
        """Give ranges and slots up, then take others; those given up leave the Lease at the next renewal."""
        if giving:
            # Slots first: nothing is to be written about them, and others wait for them.
            for number in giving:
                self._slots_since.pop(number, None)
            ranges = giving & ALL_RANGES
            await self._end_work(ranges)
            self._held -= giving
            await self._fence.idle(ranges)
            self._claims -= giving
            self.handed_over += len(ranges)
            self._log.info("gave up ranges", ranges=len(ranges), left=len(self.held), members=self.live)
        if ranges := taking & ALL_RANGES:
            self.handed_over += len(ranges)
            self._log.info("took ranges", ranges=len(ranges), owned=len(self.held), members=self.live)
            if self.owner is not None:
                await self.owner.take_ranges(ranges)

    async def _end_work(self, ranges: frozenset[int]) -> None:
        if self.owner is None or not ranges:
            return
        try:
            await self.owner.give_up_ranges(ranges)
        except KubetideError as error:
            self._log.warning("what was left to write could not be written", error=str(error), ranges=len(ranges))

    async def _leave(self) -> None:
        """Report that this replica owns nothing any more, so that others need not wait."""
        member, held = self._renewed_at is not None, self._lose()
        if not member:
            return
        try:
            async with asyncio.timeout(self._period):
                await self._fence.idle(held)
                await self._look()
                if self._mine is not None:
                    await self._write(NO_RANGES, leave=True)
                self._log.info("left", ranges=len(held))
        except (KubetideError, TimeoutError) as error:
            self._log.warning("could not say that this replica leaves", error=str(error))


def _member(lease: Lease, now: float, duration: float) -> Member:
    left, told = not lease.spec.holder_identity, lease.metadata.annotations or {}
    turn = told.get(TURN, "")
    return Member(
        lease=lease.metadata.name,
        version=lease.metadata.resource_version,
        claims=claims_of(told.get(CLAIMS, ""), left=left, slots=told.get(SLOT_CLAIMS)),
        turn=int(turn) if turn.isdecimal() and len(turn) < 16 else 0,
        duration=float(lease.spec.lease_duration_seconds or duration),
        seen_at=now,
        left=left,
    )


async def _as_coroutine(lead: Callable[[], Awaitable[None]]) -> None:
    await lead()
