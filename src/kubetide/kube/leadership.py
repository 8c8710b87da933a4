"""Leading, as one component sees it: a client that writes only while it leads, and work that runs only then.

With election switched off the component always leads and writes through the client it was given.
"""

import random
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta

from kubetide.clock import Clock
from kubetide.kube.client import Client
from kubetide.kube.fence import FencedTransport
from kubetide.kube.leader import LeaderElector


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
        chance: random.Random,
        identity: str = "",
        lease_duration: timedelta = timedelta(seconds=15),
        renew_deadline: timedelta = timedelta(seconds=10),
        retry_period: timedelta = timedelta(seconds=2),
    ) -> None:
        self.writer = client
        """The client to write with: what it sends stops the moment the Lease could have passed on."""
        self._elector: LeaderElector | None = None
        if not enabled:
            return
        self._elector = LeaderElector(
            client,
            clock=clock,
            lease_name=lease_name,
            namespace=namespace,
            identity=identity or f"{socket.gethostname()}_{chance.getrandbits(64):016x}",
            lease_duration=lease_duration,
            renew_deadline=renew_deadline,
            retry_period=retry_period,
            chance=chance,
        )
        self.writer = client.over(FencedTransport(client.transport, lambda: self.is_leader))

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
