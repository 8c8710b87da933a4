"""Which controllers a simulated cluster runs, in the order they are started."""

from kubetide.embedded.sim.controllers.base import Controller
from kubetide.embedded.sim.controllers.deployments import Deployments
from kubetide.embedded.sim.controllers.replicas import ReplicaController, ReplicationControllers
from kubetide.embedded.sim.world import World


def make_controllers(world: World) -> list[Controller]:
    """Return every controller, ready to run."""
    return [Deployments(world), ReplicaController(world), ReplicationControllers(world)]
