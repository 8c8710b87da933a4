"""Leader election on a Lease: acquire, renew, release on stop, and stop acting when it cannot renew.

The rule is pure (`kube.control.lease`). `is_leader` is a question of time, not of a flag: once the renew deadline has
passed it is False, even if the process was frozen and no task of it has run since. `FencedTransport` holds writes back
by it.
"""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, Protocol, Self

from kubetide.api.objects.core import LeaseSpec
from kubetide.api.objects.scheme import LEASES
from kubetide.api.values.codec import convert
from kubetide.clock import Clock
from kubetide.errors import KubetideError, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, Conflict, NotFound
from kubetide.kube.client.transport import Response, Transport
from kubetide.kube.control.announcement import announced_in
from kubetide.kube.control.lease import Move, Sighting, claim, next_move, released, see
from kubetide.log import get_logger

log = get_logger("leader")

RETRY_JITTER = 1.2
REFUSED_SECONDS = 60.0
"""The longest pause before a lease that was refused is tried again."""


class LeaderElector:
    """Leads while it holds the Lease. The defaults are those of Kubernetes' own controllers."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        lease_name: str,
        namespace: str,
        identity: str,
        lease_duration: timedelta = timedelta(seconds=15),
        renew_deadline: timedelta = timedelta(seconds=10),
        retry_period: timedelta = timedelta(seconds=2),
        rng: random.Random | None = None,
        shared: bool = False,
    ) -> None:
        """With `shared`, others hold the Lease under the same identity, so nobody gives it back when he stops."""
        if not retry_period * RETRY_JITTER < renew_deadline < lease_duration:
            raise ValueError("lease duration, renew deadline and retry period must grow shorter in this order")
        self.identity = identity
        self.lease_name = lease_name
        self.name = f"leader/{lease_name}"
        self.annotations: Callable[[], Mapping[str, str]] = dict
        """What the holder says of itself in the Lease, asked at every renewal."""
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._duration = lease_duration.total_seconds()
        self._deadline = renew_deadline.total_seconds()
        self._period = retry_period.total_seconds()
        self._rng = rng or client.rng
        self._shared = shared
        self._sighting: Sighting | None = None
        self._raw: dict[str, Any] = {}
        self._renewed_at: float | None = None
        self._refused = 0
        self._refusal = ""
        self._log = log.bind(lease=f"{namespace}/{lease_name}", identity=identity)
        client.announce(self)

    @property
    def is_leader(self) -> bool:
        """Whether this process may act right now."""
        return self._renewed_at is not None and self._clock.monotonic() < self._renewed_at + self._deadline

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last read."""
        return self._sighting.spec.holder_identity if self._sighting is not None else ""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, lead, and begin again when it is lost; release it when cancelled or done."""
        try:
            while True:
                await self._acquire()
                self._log.info("became leader")
                if await self._lead(lead):
                    return
                self._log.warning("lost the lease")
        finally:
            if not self._shared:
                await self._release()

    async def _acquire(self) -> None:
        while True:
            # An answer that took longer than the renew deadline won a Lease that may not be used any more.
            if await self._try() and self.is_leader:
                return
            # What is refused (no such namespace, no permission) stays so until a person acts.
            period = min(self._period * 2 ** min(self._refused, 10), max(self._period, REFUSED_SECONDS))
            await asyncio.sleep(period * (1 + (RETRY_JITTER - 1) * self._rng.random()))

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Lead until the work ends (True) or the Lease is lost (False)."""
        async with asyncio.TaskGroup() as group:
            work = group.create_task(_as_coroutine(lead), name=self.name)
            renewing = group.create_task(self._renew())
            try:
                await asyncio.wait({work, renewing}, return_when=asyncio.FIRST_COMPLETED)
                finished = work.done()
                if not finished:
                    self._renewed_at = None
            finally:
                # Renewing goes on while the work winds down, so that the Lease is not lost under it.
                if not work.cancelling():
                    work.cancel()
                await asyncio.wait({work})
                renewing.cancel()
        return finished

    async def _renew(self) -> None:
        """Renew until it is no longer possible in time, or somebody else holds the Lease."""
        while True:
            await asyncio.sleep(self._period)
            renewed_at = self._renewed_at
            if renewed_at is None:
                return
            left = renewed_at + self._deadline - self._clock.monotonic()
            try:
                async with asyncio.timeout(max(0.0, left)):
                    while not await self._try(renewing=True):
                        if self._taken_over():
                            self._renewed_at = None
                            return
                        await asyncio.sleep(self._period)
            except TimeoutError:
                self._renewed_at = None
                return

    def _taken_over(self) -> bool:
        return self.holder not in ("", self.identity)

    async def _try(self, *, renewing: bool = False) -> bool:
        """Make one attempt to take or renew the Lease. A leader does not take it back from somebody else."""
        sent = self._clock.monotonic()
        try:
            move = await self._look(sent)
            if move is Move.WAIT or (renewing and self._taken_over()):
                self._refused, self._refusal = 0, ""
                return False
            await self._attempt(move, sent)
        except (Conflict, AlreadyExists):
            self._log.debug("somebody else was faster")
            return False
        except Unavailable as error:
            self._log.debug("cannot read or write the lease", error=str(error))
            return False
        except KubetideError as error:
            self._refuse(error)
            return False
        self._refused, self._refusal = 0, ""
        self._renewed_at = sent
        return True

    async def _attempt(self, move: Move, sent: float) -> None:
        """Write the Lease; one that is shared may have been written since it was read, for all who share it."""
        try:
            await self._write(move)
        except (Conflict, AlreadyExists):
            if not self._shared:
                raise
            await self._look(sent)
            if self.holder != self.identity:
                raise

    def _refuse(self, error: KubetideError) -> None:
        """Count an error, and report it once: the same words every two seconds help nobody."""
        self._refused += 1
        if str(error) == self._refusal:
            return
        self._refusal = str(error)
        missing = isinstance(error, NotFound)  # reading a lease that is not there is no error: its namespace is not
        remedy = {"fix": f"kubectl create namespace {self._namespace}"} if missing else {}
        self._log.warning("cannot read or write the lease", error=str(error), **remedy)

    async def _look(self, now: float) -> Move:
        try:
            self._raw = await self._client.get_raw(LEASES, self.lease_name, namespace=self._namespace)
        except NotFound:
            self._sighting = None
        else:
            self._note(self._raw, now)
        return next_move(self._sighting, self.identity, duration=self._duration, now=now)

    async def _write(self, move: Move) -> None:
        current = self._sighting.spec if self._sighting is not None else None
        spec = claim(current, self.identity, duration=self._duration, now=self._clock.now())
        if move is Move.CREATE:
            body = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": announced_in({"name": self.lease_name, "namespace": self._namespace}, self.annotations()),
                "spec": spec,
            }
            await self._client.create(LEASES, body, namespace=self._namespace)
            self._sighting = see(None, "", convert(spec, LeaseSpec), now=self._clock.monotonic())
            return
        # The whole object goes back, with its resource version: what others wrote in it stays, and a race is lost.
        body = self._body(spec, self.annotations())
        lease = await self._client.update(LEASES, self.lease_name, body, namespace=self._namespace)
        self._sighting = see(None, lease.metadata.resource_version, lease.spec, now=self._clock.monotonic())

    def _body(self, spec: dict[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
        metadata = announced_in(self._raw.get("metadata") or {}, annotations)
        return {**self._raw, "metadata": metadata, "spec": {**(self._raw.get("spec") or {}), **spec}}

    def _note(self, raw: dict[str, Any], now: float) -> None:
        spec = convert(raw.get("spec") or {}, LeaseSpec, what=f"lease {self.lease_name}")
        version = (raw.get("metadata") or {}).get("resourceVersion") or ""
        self._sighting = see(self._sighting, version, spec, now=now)

    async def _release(self) -> None:
        """Give the Lease back, if it is still ours, so that the next leader need not wait."""
        if self._renewed_at is None:
            return
        self._renewed_at = None
        try:
            async with asyncio.timeout(self._period):
                self._raw = await self._client.get_raw(LEASES, self.lease_name, namespace=self._namespace)
                self._note(self._raw, self._clock.monotonic())
                if self._sighting is None or self.holder != self.identity:
                    return
                spec = released(self._sighting.spec, now=self._clock.now())
                body = self._body(spec, {})
                await self._client.update(LEASES, self.lease_name, body, namespace=self._namespace)
                self._log.info("released the lease")
        except (KubetideError, TimeoutError) as error:
            self._log.warning("could not release the lease", error=str(error))


async def _as_coroutine(lead: Callable[[], Awaitable[None]]) -> None:
    await lead()


# A transport that lets writes through only while their sender leads.


class NotLeading(Unavailable):
    """A write was held back because this process does not hold the Lease."""


class FencedTransport:
    """Passes requests on; writes only while `may_write` says so of their path."""

    def __init__(self, inner: Transport, may_write: Callable[[str], bool]) -> None:
        self._inner = inner
        self._may_write = may_write

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        """Send a request, or raise NotLeading."""
        if method in ("GET", "HEAD"):
            passing: AbstractContextManager[None] = nullcontext()
        elif self._allows(path, body):
            passing = self._writing(path, body)
        else:
            raise NotLeading(f"held back {method} {path}: the lease is not held")
        with passing:
            return await self._inner.request(
                method, path, query=query, body=body, content_type=content_type, accept=accept, timeout=timeout
            )

    def _allows(self, path: str, body: bytes | None) -> bool:
        return self._may_write(path)

    def _writing(self, path: str, body: bytes | None) -> AbstractContextManager[None]:
        """Return the context of a write that passes; here nobody wants to know of it."""
        return nullcontext()

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch."""
        return self._inner.watch(path, query=query)

    async def close(self) -> None:
        """Close the transport behind."""
        await self._inner.close()


# Leading, as one component sees it: a client that writes only while it leads, and work that runs only then.


class ElectionSettings(Protocol):
    """The leader-election settings that components share, under the names of their flags."""

    @property
    def leader_elect(self) -> bool: ...
    @property
    def leader_elect_resource_name(self) -> str: ...
    @property
    def leader_elect_resource_namespace(self) -> str: ...
    @property
    def leader_elect_lease_duration(self) -> timedelta: ...
    @property
    def leader_elect_renew_deadline(self) -> timedelta: ...
    @property
    def leader_elect_retry_period(self) -> timedelta: ...


class Leadership:
    """Who may act. The defaults are those of Kubernetes' own controllers."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        enabled: bool,
        lease_name: str,
        namespace: str,
        rng: random.Random,
        identity: str = "",
        lease_duration: timedelta = timedelta(seconds=15),
        renew_deadline: timedelta = timedelta(seconds=10),
        retry_period: timedelta = timedelta(seconds=2),
    ) -> None:
        self.writer = client
        """The client to write with: what it sends stops the moment the Lease could have passed on."""
        self.lease = f"{namespace}/{lease_name}"
        self._elector: LeaderElector | None = None
        if not enabled:
            return
        self._elector = LeaderElector(
            client,
            clock=clock,
            lease_name=lease_name,
            namespace=namespace,
            identity=identity or f"{socket.gethostname()}_{rng.getrandbits(64):016x}",
            lease_duration=lease_duration,
            renew_deadline=renew_deadline,
            retry_period=retry_period,
            rng=rng,
        )
        self.writer = client.over(FencedTransport(client.transport, lambda path: self.is_leader))

    @classmethod
    def from_settings(
        cls, client: Client, settings: ElectionSettings, *, clock: Clock, rng: random.Random, lease_name: str = ""
    ) -> Self:
        """Return the leadership that a component's settings ask for; `lease_name` overrides theirs."""
        return cls(
            client,
            clock=clock,
            enabled=settings.leader_elect,
            lease_name=lease_name or settings.leader_elect_resource_name,
            namespace=settings.leader_elect_resource_namespace,
            rng=rng,
            lease_duration=settings.leader_elect_lease_duration,
            renew_deadline=settings.leader_elect_renew_deadline,
            retry_period=settings.leader_elect_retry_period,
        )

    @property
    def is_leader(self) -> bool:
        """Whether this process may act right now."""
        return self._elector is None or self._elector.is_leader

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run `lead` whenever this process leads, until cancelled."""
        if self._elector is None:
            await lead()
        else:
            await self._elector.run(lead)
