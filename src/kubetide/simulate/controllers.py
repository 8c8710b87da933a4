"""kubetide's controllers inside a simulated cluster: one assembly for `demo`, `up --with` and `simulate`.

They live in the time of the cluster and their webhooks are called in process. Nothing here opens a port: what answers
for them (`cli.node.simulated`) is told what they know, and a day does not depend on whether somebody may look at it.
"""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.scenario import Scenario
from kubetide.errors import InvalidInput
from kubetide.hpa.settings import HpaSettings
from kubetide.install.rbac import LOCAL
from kubetide.kube.control.manager import Component, Manager, running
from kubetide.node.agent import NodeAgent
from kubetide.settings import ALL as CONTROLLERS
from kubetide.settings import COMPONENTS
from kubetide.simulate.agents import make_agent
from kubetide.telemetry import Telemetry
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.wiring import Dependencies, build

NODE = "node"
"""An agent on every node."""
PLAN = "plan"
"""What carries out WorkloadPlans: to be named, `all` does without it as it does in a cluster."""
ALL = (*CONTROLLERS, NODE)
_FOR_AGENTS = (b"koordinator.sh", b"slo-controller-config", b"kubernetes.io/batch-", b"kubernetes.io/mid-")
"""What sets agents to work: labels, annotations and resources of QoS, their objects, settings of the SLO controller."""


def needed(scenario: Scenario) -> tuple[str, ...]:
    """Return every controller, and the agents only where something in a scenario is for them.

    An agent that nothing was configured for reads its node and reports what others read from the metrics API too: it
    takes most of the time of a simulation and changes none of its figures.
    """
    text = msgspec.json.encode(scenario)
    return ALL if any(word in text for word in _FOR_AGENTS) else CONTROLLERS


def parse_with(text: str) -> tuple[str, ...]:
    """Read `hpa,recommender,node`; `all` stands for every controller and the agents."""
    names = ALL if text == "all" else tuple(part.strip() for part in text.split(",") if part.strip())
    known = (*CONTROLLERS, PLAN, NODE)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        wrong = f"{unknown[0]!r} is none of" if unknown else "name some of"
        raise InvalidInput(f"{wrong} {', '.join(known)}, or all", field="--with")
    return tuple(dict.fromkeys(names))


@dataclass(slots=True)
class Controllers:
    """The controllers of a simulated cluster, once they have been assembled; until then they know nothing."""

    telemetry: Telemetry = field(default_factory=Telemetry)
    agents: list[NodeAgent] = field(default_factory=list)
    _manager: Manager | None = None

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return what the controllers, not the agents, know about an object."""
        return self._manager.explain(kind, key) if self._manager is not None else None

    @asynccontextmanager
    async def at_work(
        self, cluster: SimCluster, names: Sequence[str], *, agent_interval: timedelta
    ) -> AsyncIterator[None]:
        """Run the named controllers on a cluster while the block lasts; what fails ends it."""
        for namespace in sorted({local.namespace for name in names for local in LOCAL[name] if local.namespace}):
            await cluster.ensure_namespace(namespace)  # as the manifests would
        with TemporaryDirectory(prefix="kubetide-audit-") as audit:
            components = [part for name in names if name != NODE for part in self._build(cluster, name, names)]
            if NODE in names:
                self.agents += [
                    make_agent(
                        cluster, node, cluster.seed, interval=agent_interval, telemetry=self.telemetry,
                        audit=Path(audit),
                    )
                    for node in cluster.hosts
                ]  # fmt: skip
            self._manager = Manager(name="controllers")
            for component in components:
                self._manager.add(component)
            everything = Manager(name="simulated")
            everything.add(self._manager)
            for agent in self.agents:
                everything.add(agent)
            async with running(everything):
                yield

    def _build(self, cluster: SimCluster, name: str, beside: Sequence[str]) -> list[Component]:
        settings = COMPONENTS[name]()
        if hasattr(settings, "leader_elect"):  # one of each: nobody to elect
            settings = msgspec.structs.replace(settings, leader_elect=False)
        if isinstance(settings, HpaSettings):  # in one process a watch costs less than asking, however few they are
            settings = msgspec.structs.replace(settings, scale_watch_from=1, coordinate=PLAN in beside)
        if isinstance(settings, AdmissionSettings):  # its heartbeat is fresh for a minute
            settings = msgspec.structs.replace(settings, lease_period=timedelta(seconds=30))
        world = Dependencies(
            client=cluster.client(cache_check=timedelta(0)),  # a server in this process loses nothing
            clock=cluster.clock,
            telemetry=self.telemetry,
            rng=random.Random(f"{cluster.seed}/{name}"),
            local_webhooks=cluster.api.admission,
        )
        return build(name, world, settings)

    def ready(self) -> bool:
        """Return whether all of them have started."""
        return self._manager is not None and self._manager.ready()
