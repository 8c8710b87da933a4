"""Migration: kubetide's components and upstream's hand over to each other, there and back, at random moments."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from cluster import test_slo_overcommit as overcommit
from drills.drill import Run, drill
from drills.stage import MASTERS, Replica, Scene, play
from drills.test_bad_days import evicted, seconds_until, web, wish
from drills.test_horizontal import count, scales
from drills.upstream import EXTENSIONS, Upstream, UpstreamManager, UpstreamUpdater, UpstreamWebhook
from drills.upstream_recommender import UpstreamRecommender
from kubetide import crds
from kubetide.api.objects.scheme import NODE_SLOS, PODS
from kubetide.embedded.apiserver.rest.requests import User
from kubetide.embedded.sim.load.scenario import Scenario
from kubetide.embedded.sim.time.loop import DEFAULT_START
from kubetide.testing.builders import make_deployment, make_pod, make_vpa
from simulated.cluster import pods, ready_pods
from simulated.recommending import recommended
from simulated.updating import recommend

Raw = dict[str, Any]
SLOW = Scenario(tick="15s")
TURNS = 10
START = DEFAULT_START


@drill(
    "migration",
    shows="kubetide's autoscaler and the built-in one of Kubernetes hand over to each other, there and back, at "
    "ten random moments while the load changes",
    figure="changes of the count beyond those of the load",
    bound=0,
    unit="changes",
)
def test_autoscalers_hand_over_at_any_moment(run: Run) -> float:
    async def main(scene: Scene) -> float:
        await web(scene, replicas=4)
        random, wanted, changes = Random(5), 4, 0
        ours: Replica | None = await scene.start("hpa")
        upstream = BuiltIn(scene)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(upstream.run())
            for _ in range(10):
                await scene.pass_time(seconds=random.uniform(60, 180))
                new = random.choice([size for size in range(4, 9) if size != wanted])
                wanted, changes = new, changes + 1
                wish(scene, wanted)
                await scene.pass_time(seconds=random.uniform(0, 20))
                if ours is not None:
                    ours.stop()
                    ours, upstream.acts = None, True
                else:
                    upstream.acts = False
                    ours = await scene.start("hpa")
                await seconds_until(scene, partial(_is, scene, wanted), minutes=5)
            task.cancel()
        return len(scales(scene)) - changes

    return play(run, main, scenario=SLOW)


def _is(scene: Scene, wanted: int) -> bool:
    return count(scene) == wanted


class BuiltIn:
    """Stands for the autoscaler of kube-controller-manager: its Lease, its user, its period of 15 seconds."""

    LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    SCALE = "/apis/apps/v1/namespaces/default/deployments/web/scale"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._client = scene.cluster.client(User("system:kube-controller-manager", MASTERS))
        self.acts = False
        self._held = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1)
            if self.acts or self._held:
                await self._hold(self.acts)
            if self.acts and int(self._scene.cluster.elapsed()) % 15 == 0:
                await self._scale()

    async def _hold(self, held: bool) -> None:
        stamp = f"{self._scene.now:%Y-%m-%dT%H:%M:%S.000000Z}"
        await self._scene.cluster.apply(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
                "spec": {"holderIdentity": "node-1" if held else "", "leaseDurationSeconds": 15, "renewTime": stamp},
            }
        )
        self._held = held

    async def _scale(self) -> None:
        queue = self._scene.cluster.metrics.external("default", "queue-web")
        wanted = int(float(queue[0]["value"]))
        if count(self._scene) != wanted:
            body = b'{"spec":{"replicas":%d}}' % wanted
            await self._client.request(
                "PATCH", self.SCALE, body=body, content_type="application/merge-patch+json",
                query={"fieldManager": "kube-controller-manager"},
            )  # fmt: skip


class Sides:
    """kubetide and upstream in turns: the next one starts before or after the last one stops, or is killed."""

    def __init__(
        self, scene: Scene, group: asyncio.TaskGroup, component: str, upstream: type[Upstream], **settings: Any
    ) -> None:
        self._scene, self._group = scene, group
        self._component, self._upstream, self._settings = component, upstream, settings
        self._turns = 0
        self.last: Replica | Upstream | None = None

    async def start(self) -> Replica | Upstream:
        """Start the side whose turn it is: upstream first."""
        self._turns += 1
        if self._turns % 2 == 0:
            return await self._scene.start(self._component, elect=True, **self._settings)
        made = self._upstream(self._scene, self._turns)
        self._group.create_task(made.run())
        return made

    async def turn(self, rng: Random) -> None:
        """Hand over."""
        before, after = rng.choice(((0.0, 0.0), (rng.uniform(0, 40), 0.0), (0.0, rng.uniform(0, 20))))
        last, made = self.last, None
        if before:
            made = await self.start()
            await self._scene.pass_time(seconds=before)
        if last is not None:
            rng.choice((last.stop, last.kill))()
            await self._scene.pass_time(seconds=after)
        self.last = made or await self.start()

    def end(self) -> None:
        """Stop whoever is at work."""
        assert self.last is not None
        self.last.stop()


@drill(
    "migration-recommender",
    shows="kubetide's recommender and a stand-in for upstream's hand over to each other at ten random moments of six "
    "hours, overlapping or with a gap, stopped or killed; statuses and checkpoints are taken over and handed back",
    figure="how far a target is from that of a stand-in that was never replaced",
    bound=1,
    unit="%",
)
def test_recommenders_hand_over_at_any_moment(run: Run) -> float:
    names = ("a", "b", "c")

    def day(moments: set[int]) -> dict[str, int]:
        async def main(scene: Scene) -> dict[str, int]:
            for name in names:
                await scene.cluster.apply(make_deployment(name, replicas=2, cpu="500m", memory="512Mi"))
                await scene.cluster.apply(make_vpa(name, target=name, mode="Off"))
            levels, turns, missing = Random(1), Random(2), 0
            async with asyncio.TaskGroup() as group:
                sides = Sides(scene, group, "recommender", UpstreamRecommender)
                for minute in range(6 * 60):
                    if minute % 10 == 0:
                        for name in names:
                            level = levels.choice((100, 200, 300, 400))
                            scene.cluster.set_usage("default", name, cpu=f"{level}m", memory="400Mi")
                    if minute in moments:
                        await sides.turn(turns)
                    await scene.cluster.run_for(START + timedelta(minutes=minute + 1) - scene.now)
                    given = [recommended(scene.cluster, "default", name) for name in names]
                    missing += minute > 5 and not all(given)
                sides.end()
            assert missing == 0, "a VPA was left without its recommendation"
            return {
                f"{name}/{what}": amount
                for name, each in zip(names, given, strict=True)
                for what, amount in each.items()
            }

        return play(run, main, scenario=Scenario(tick="60s"), start=START)

    plain = day({0})
    handed = day({0, *Random(3).sample(range(10, 350), TURNS)})
    assert len(plain) == 2 * len(names)
    return max(100 * abs(handed[name] - amount) / amount for name, amount in plain.items())


@drill(
    "migration-updater",
    shows="kubetide's updater and a stand-in for upstream's hand over to each other while they evict two workloads of "
    "eight pods, ten times, overlapping or with a gap, stopped or killed; half of each workload stays",
    figure="evictions beyond one of each pod for each change of the recommendation",
    bound=0,
    unit="evictions",
)
def test_updaters_hand_over_at_any_moment(run: Run) -> float:
    names, replicas = ("web", "db"), 8

    async def main(scene: Scene) -> float:
        fewest = replicas
        for name in names:
            await scene.cluster.apply(make_deployment(name, replicas=replicas, cpu="200m", memory="64Mi"))
            await scene.cluster.apply(make_vpa(name, target=name, mode="Recreate"))
            scene.cluster.set_usage("default", name, cpu="50m", memory="32Mi")
        await scene.start("admission", local_name="vpa")
        await scene.pass_time(minutes=2)
        rng, changes = Random(4), 0

        def sizes() -> set[str]:
            found = [pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in pods(scene.cluster)]
            return set(found)

        async with asyncio.TaskGroup() as group:
            sides = Sides(scene, group, "updater", UpstreamUpdater)
            await sides.turn(rng)
            for turn in range(TURNS):
                cpu = ("300m", "500m")[turn % 2]
                for name in names:
                    await recommend(scene.cluster, name, {"cpu": cpu, "memory": "64Mi"})
                changes += 1
                await scene.pass_time(seconds=rng.uniform(5, 150))
                await sides.turn(rng)
                for _ in range(3600):
                    ready = Counter(pod["metadata"]["labels"]["app"] for pod in ready_pods(scene.cluster, "default"))
                    fewest = min(fewest, *(ready[name] for name in names))
                    if sizes() == {cpu} and ready.total() == replicas * len(names):
                        break
                    await scene.pass_time(seconds=1)
                assert sizes() == {cpu}, "some pods are not at their size after an hour"
            sides.end()
        assert fewest >= replicas // 2
        return evicted(scene) - changes * replicas * len(names)

    return play(run, main, nodes=3, scenario=SLOW)


class Heard(dict[str, Any]):
    """The webhooks in this process; notes which of them are asked about which pods."""

    def __init__(self, hooks: dict[str, Any]) -> None:
        super().__init__(hooks)
        self.asked: dict[str, list[str]] = {}

    def get(self, name: str, default: Any = None) -> Any:
        hook: Callable[[Raw], Awaitable[Raw]] | None = super().get(name)
        if hook is None:
            return default

        async def noting(review: Raw) -> Raw:
            if review["request"]["resource"]["resource"] == "pods":
                self.asked.setdefault(review["request"]["object"]["metadata"].get("name", ""), []).append(name)
            return await hook(review)

        return noting


@drill(
    "migration-webhook",
    shows="kubetide's webhook and a stand-in for upstream's take turns, ten times: the next one starts beside the last "
    "one, which is stopped half a minute later, while a pod a second is created",
    figure="pods that were not patched, or by more than one of them",
    bound=0,
    unit="pods",
)
def test_webhooks_hand_over_at_any_moment(run: Run) -> float:
    async def main(scene: Scene) -> float:
        scene.cluster.add_node("large", cpu="2000", memory="4Ti", pods=20_000)
        await scene.cluster.apply(make_deployment("web", replicas=1, cpu="1m", memory="1Mi"))
        await scene.cluster.apply(make_vpa("web", mode="Initial"))
        await recommend(scene.cluster, "web", {"cpu": "5m", "memory": "2Mi"})
        await scene.pass_time(seconds=30)
        local = scene.cluster.api.admission
        local._local = heard = Heard(local._local)
        client, rng, wrong = scene.cluster.client(), Random(6), 0
        (template,) = pods(scene.cluster, "default")
        labels, owners = (template["metadata"][part] for part in ("labels", "ownerReferences"))

        async def create(seconds: int) -> int:
            """Create a pod a second; return how many did not come out right."""
            failed = 0
            for _ in range(seconds):
                name = f"new-{scene.cluster.elapsed():.0f}"
                made = make_pod(name, labels=labels, cpu="1m", memory="1Mi")
                made["metadata"]["ownerReferences"] = owners
                created = await client.create(PODS, made, namespace="default")
                resources = (created.spec.containers or ())[0].resources
                assert resources is not None
                patched = (resources.requests or {}).get("cpu") == "5m"
                failed += not patched or len(heard.asked.get(name, [])) != 1
                await client.delete(PODS, name, namespace="default", grace_period_seconds=0)
                await scene.pass_time(seconds=1)
            return failed

        async with asyncio.TaskGroup() as group:
            last: Replica | UpstreamWebhook = await scene.start("admission", local_name="vpa")
            await scene.pass_time(seconds=5)
            for turn in range(TURNS):
                wrong += await create(rng.randrange(1, 60))
                if turn % 2 == 0:
                    upstream = UpstreamWebhook(scene, turn)
                    group.create_task(upstream.run())
                    made: Replica | UpstreamWebhook = upstream
                else:
                    made = await scene.start("admission", local_name="vpa")
                wrong += await create(rng.randrange(15, 45))
                last.stop()
                if isinstance(last, Replica):
                    heard.pop("vpa")
                last = made
                wrong += await create(30)
            last.stop()
        sides = Counter(side for asked in heard.asked.values() for side in asked)
        assert min(sides["vpa"], sides["upstream"]) > 100
        return wrong

    return play(run, main, scenario=SLOW)


@drill(
    "migration-slo",
    shows="kubetide's SLO controller and a stand-in for Koordinator's manager hand over to each other at ten random "
    "moments, overlapping or with a gap of up to 20 s, stopped or killed, while nodes report",
    figure="longest time for which batch-cpu was not what the last report is worth",
    bound=45,
    unit="s",
)
def test_slo_controllers_hand_over_at_any_moment(run: Run) -> float:
    async def main(scene: Scene) -> float:
        cluster = scene.cluster
        cluster.add_node("node-1", cpu="32", memory="64Gi")
        await cluster.apply(list(crds.load_all()))
        await cluster.ensure_namespace(overcommit.CONFIG_NAMESPACE)
        settings = {"enable": True, "cpuReclaimThresholdPercent": 60, "resourceDiffThreshold": 0.001}
        await overcommit.configure(cluster.client(), colocation_config=settings)
        rng, longest = Random(8), 0.0
        async with asyncio.TaskGroup() as group:
            sides = Sides(scene, group, "slo", UpstreamManager)
            await sides.turn(rng)
            await scene.pass_time(seconds=20)
            for turn in range(TURNS + 1):
                cores = 4 + turn % 3
                await overcommit.report(cluster, "node-1", cpu=str(cores), memory="8Gi")
                begin = scene.now
                await scene.pass_time(seconds=rng.uniform(0, 5))
                await sides.turn(rng)
                wanted = str(32_000 * 60 // 100 - cores * 1000)
                while (found := (await overcommit.lent(cluster))[0]) != wanted:
                    assert found is not None or turn == 0, "what was overcommitted is gone"
                    await scene.pass_time(seconds=0.5)
                longest = max(longest, (scene.now - begin).total_seconds())
                await scene.pass_time(seconds=rng.uniform(20, 60))
            sides.end()
        slo = await cluster.client().get_raw(NODE_SLOS, "node-1")
        assert slo["spec"]["extensions"] == EXTENSIONS
        return longest

    return play(run, main, nodes=0)
