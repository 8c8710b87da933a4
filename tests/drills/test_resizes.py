"""Resizes in place: every state of a resize, on nodes that fill up and empty, under recommendations that change."""

from random import Random

from drills.drill import Run, drill
from drills.stage import Scene, play
from kubetide.api.objects.scheme import NODES
from kubetide.api.values.patch import MergePatch
from kubetide.api.values.quantity import cpu_millis
from kubetide.embedded.sim.load.scenario import Scenario
from kubetide.testing.builders import make_deployment, make_vpa
from simulated.cluster import ready_pods
from simulated.updating import recommend

NAMES = ("a", "b", "c")
SIZES = (100, 200, 400, 900, 1500, 2500, 3800)
"""Millicores: what always fits, and what a node defers that holds two such pods already."""
RESIZE_CONDITIONS = ("PodResizePending", "PodResizeInProgress")


@drill(
    "resize-states",
    shows="recommendations that fit or must wait for room, changed at random while a node is cordoned now and then: "
    "resizes are done at once, deferred and done later, or end in an eviction",
    figure="pods that are not at their size an hour after the last change",
    bound=0,
    unit="pods",
    short="six changes instead of sixty",
)
def test_every_resize_comes_to_an_end(run: Run) -> float:
    changes = 60 if run.whole else 6

    async def main(scene: Scene) -> float:
        cluster, random, states = scene.cluster, Random(3), set[str]()
        for name in NAMES:
            await cluster.apply(make_deployment(name, replicas=3, cpu="100m", memory="64Mi"))
            await cluster.apply(make_vpa(name, target=name, mode="InPlaceOrRecreate"))
            cluster.set_usage("default", name, cpu="50m", memory="32Mi")
        await scene.start("admission", local_name="vpa")
        await scene.start("updater")
        await scene.pass_time(minutes=2)
        # All pods are on two nodes by now: what grows has no room there, and finds it elsewhere.
        for number in range(4):
            cluster.add_node(f"other-{number}")

        async def want(sizes: dict[str, int]) -> None:
            for name, millis in sizes.items():
                lower, upper = {"cpu": f"{millis - 1}m"}, {"cpu": f"{millis + 1}m"}
                await recommend(cluster, name, {"cpu": f"{millis}m", "memory": "64Mi"}, lower=lower, upper=upper)

        for _ in range(changes):
            await want({name: random.choice(SIZES) for name in NAMES})
            cordoned = random.random() < 0.4
            await cluster.client().patch(NODES, "node-1", MergePatch({"spec": {"unschedulable": cordoned}}))
            for _ in range(random.randint(4, 10)):
                await scene.pass_time(minutes=2)
                states |= _states(scene)
        await cluster.client().patch(NODES, "node-1", MergePatch({"spec": {"unschedulable": False}}))
        last = {"a": 150, "b": 300, "c": 250}
        await want(last)
        await scene.pass_time(hours=1)
        assert "Deferred" in states, states
        return sum(
            cpu_millis(_cpu(pod)) != last[name] for name in NAMES for pod in ready_pods(cluster, "default", app=name)
        ) + sum(3 - len(ready_pods(cluster, "default", app=name)) for name in NAMES)

    return play(run, main, nodes=2, scenario=Scenario(tick="30s"))


def _cpu(pod: dict[str, object]) -> str:
    statuses = pod["status"]["containerStatuses"]  # type: ignore[index]
    return str(statuses[0]["resources"]["requests"]["cpu"])


def _states(scene: Scene) -> set[str]:
    return {
        condition.get("reason") or condition["type"]
        for name in NAMES
        for pod in ready_pods(scene.cluster, "default", app=name)
        for condition in pod["status"].get("conditions") or ()
        if condition["type"] in RESIZE_CONDITIONS and condition["status"] == "True"
    }
