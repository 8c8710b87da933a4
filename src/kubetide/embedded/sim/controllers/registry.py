"""Which controllers a simulated cluster runs, in the order they are started."""

from datetime import timedelta

from kubetide.embedded.sim.controllers.base import SimController
from kubetide.embedded.sim.controllers.budgets import Budgets
from kubetide.embedded.sim.controllers.cronjobs import CronJobs
from kubetide.embedded.sim.controllers.daemonsets import DaemonSets
from kubetide.embedded.sim.controllers.deployments import Deployments
from kubetide.embedded.sim.controllers.endpoints import Endpoints
from kubetide.embedded.sim.controllers.expiry import EVENT_TTL, EventExpiry
from kubetide.embedded.sim.controllers.garbage import Garbage
from kubetide.embedded.sim.controllers.jobs import Jobs
from kubetide.embedded.sim.controllers.namespaces import Namespaces
from kubetide.embedded.sim.controllers.nodes import NodeLifecycle
from kubetide.embedded.sim.controllers.quotas import Quotas
from kubetide.embedded.sim.controllers.replicas import ReplicaController, ReplicationControllers
from kubetide.embedded.sim.controllers.statefulsets import StatefulSets
from kubetide.embedded.sim.world import World


def make_controllers(world: World, *, event_ttl: timedelta = EVENT_TTL) -> list[SimController]:
    """Return every controller, ready to run."""
    return [
        Namespaces(world),
        Garbage(world),
        NodeLifecycle(world),
        Deployments(world),
        ReplicaController(world),
        ReplicationControllers(world),
        StatefulSets(world),
        DaemonSets(world),
        Jobs(world),
        CronJobs(world),
        Budgets(world),
        Quotas(world),
        Endpoints(world),
        EventExpiry(world, event_ttl),
    ]
