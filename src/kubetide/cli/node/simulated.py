"""What answers for the agents of simulated nodes and the controllers beside them, in `kubetide demo` and `up --with`.

Asked over HTTP, they answer together: `kubetide node status` shows one node or all of them.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from kubetide.cli.asking import join
from kubetide.node.agent import NodeAgent
from kubetide.node.endpoints import NodeEndpoints
from kubetide.node.executor.audit_log import MAX_PAGE, UnknownToken
from kubetide.simulate.controllers import Controllers

_MAX_READERS = 4


Explain = Callable[[str, str], dict[str, Any] | None]


def explain_together(agents: Sequence[NodeAgent], others: Explain) -> Explain:
    """Return who answers for all agents, and for the controllers beside them.

    `status/self` is the one node there is, or all of them.
    """

    def explain(kind: str, key: str) -> dict[str, Any] | None:
        if kind == "status" and key == "self" and len(agents) != 1:
            return {"nodes": [agent.status() for agent in agents]}
        found = (answer for agent in agents if (answer := agent.explain(kind, key)) is not None)
        return join(kind, others(kind, key), next(found, None))

    return explain


class JointAudit:
    """The audit logs of several agents as one, newest first.

    The logs are read whole when the first page is asked for: those of a simulation are short, and of two pages asked
    at different times the second would otherwise depend on what was written in between.
    """

    def __init__(self, agents: Sequence[NodeAgent]) -> None:
        self._agents = agents
        self._readers: dict[str, list[dict[str, Any]]] = {}
        self._numbers = count(1)

    async def query(self, size: int, token: str) -> tuple[list[dict[str, Any]], str]:
        """Return events, newest first, and the token of the next page (empty at the end)."""
        if token and token not in self._readers:
            raise UnknownToken("unknown or expired page token")
        events = self._readers.pop(token) if token else await self._read()
        page, rest = events[:size], events[size:]
        if not rest:
            return page, ""
        while len(self._readers) >= _MAX_READERS:
            del self._readers[next(iter(self._readers))]
        following = str(next(self._numbers))
        self._readers[following] = rest
        return page, following

    async def _read(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for agent in self._agents:
            token = ""
            while agent.audit is not None:
                events, token = await agent.audit.query(MAX_PAGE, token)
                found += [{**event, "node": agent.node_name} for event in events]
                if not token:
                    break
        return sorted(found, key=lambda event: str(event.get("createdAt", "")), reverse=True)


@asynccontextmanager
async def answering(controllers: Controllers, port: int) -> AsyncIterator[str]:
    """Answer for controllers and agents on loopback while the block lasts, and give the address.

    Both may come later: who asks before hears that nothing is known.
    """
    from kubetide.kube.connections import ConnectionLimits
    from kubetide.kube.listener import listening

    agents = controllers.agents
    endpoints = NodeEndpoints(
        controllers.telemetry,
        audit=JointAudit(agents),
        healthy=lambda: all(agent.healthy() for agent in agents),
        ready=lambda: controllers.ready() and all(agent.ready() for agent in agents),
        explain=explain_together(agents, controllers.explain),
    )
    async with listening(ConnectionLimits().runner(endpoints.application()), "127.0.0.1", port) as taken:
        yield f"127.0.0.1:{taken}"
