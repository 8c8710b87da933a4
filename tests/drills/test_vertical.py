"""Sizes: restart storms, webhooks that fail, a recommender that dies all day, pods unlike their peers, resizes."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from drills.drill import Run, drill
from drills.existing import module
from drills.stage import Scene, play
from kubetide.api.objects.scheme import DEPLOYMENTS as DEPLOYMENT_TYPE
from kubetide.api.objects.scheme import PODS as POD_TYPE
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.embedded.sim.load.scenario import Scenario
from kubetide.errors import KubetideError, Unavailable
from kubetide.testing.builders import make_cron_job, make_deployment, make_pod, make_stateful_set, make_vpa
from simulated.cluster import pods, ready_pods
from simulated.recommending import recommended
from simulated.updating import recommend
from soak import recommender_churn

Raw = dict[str, Any]
MINUTELY = Scenario(tick="60s")
QUARTERLY = Scenario(tick="15s")
MIB = 2**20


def cpu_of(pod: Raw) -> str:
    return str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def restarts(scene: Scene, prefix: str = "") -> int:
    return sum(
        status.get("restartCount", 0)
        for pod in pods(scene.cluster)
        if pod["metadata"]["name"].startswith(prefix)
        for status in (pod.get("status") or {}).get("containerStatuses") or ()
    )


@drill(
    "restart-storm",
    shows="3,000 pods of 30 workloads under VPAs are deleted within half a minute and come back",
    figure="pods that come back without the recommended size",
    bound=0,
    short="300 pods of 3 workloads",
)
def test_pods_of_a_restart_storm_come_back_with_their_sizes(run: Run) -> float:
    workloads = 30 if run.whole else 3

    async def main(scene: Scene) -> float:
        scene.cluster.add_node("large", cpu="2000", memory="4Ti", pods=10_000)
        names = [f"app-{number}" for number in range(workloads)]
        for name in names:
            await scene.cluster.apply(make_deployment(name, replicas=100, cpu="300m", memory="64Mi"))
            await scene.cluster.apply(make_vpa(name, target=name, mode="Recreate"))
            scene.cluster.set_usage("default", name, cpu="50m", memory="32Mi")
        await scene.start("admission", local_name="vpa")
        await scene.start("recommender")
        await scene.start("updater", interval=timedelta(hours=12))
        await scene.pass_time(minutes=5)
        for name in names:
            await recommend(scene.cluster, name, {"cpu": "320m", "memory": "80Mi"})
        client = scene.cluster.client()
        for number, pod in enumerate(pods(scene.cluster)):
            await client.delete(POD_TYPE, pod["metadata"]["name"], namespace="default", grace_period_seconds=0)
            if number % 100 == 99:
                await scene.pass_time(seconds=1)
        await scene.pass_time(minutes=5)
        found = ready_pods(scene.cluster)
        assert len(found) == 100 * workloads
        targets = {name: recommended(scene.cluster, "default", name)["cpu"] for name in names}
        assert all(targets.values())
        return sum("vpaUpdates" not in (pod["metadata"].get("annotations") or {}) for pod in found)

    return play(run, main, scenario=QUARTERLY)


Hook = Callable[[Raw], Awaitable[Raw]]


async def _nothing(review: Raw) -> Raw:
    return {}


async def _fails(review: Raw) -> Raw:
    raise Unavailable("the webhook answered 500")


async def _hangs(review: Raw) -> Raw:
    await asyncio.sleep(3600)
    return {}


@drill(
    "webhook-broken",
    shows="the webhook answers with nothing, with 500, or never, while pods are created and the updater is about "
    "to evict",
    figure="longest wait for the creation of a pod",
    bound=30,
    unit="s",
)
def test_a_broken_webhook_stops_no_pod_and_no_pod_is_evicted_for_it(run: Run) -> float:
    async def main(scene: Scene) -> float:
        await scene.cluster.apply(make_deployment("web", replicas=6, cpu="100m", memory="64Mi"))
        await scene.cluster.apply(make_vpa("web", mode="Recreate"))
        scene.cluster.set_usage("default", "web", cpu="50m", memory="32Mi")
        await scene.start("admission", local_name="vpa")
        await scene.pass_time(minutes=1)
        local = scene.cluster.api.admission
        healthy = local._local["vpa"]
        client, longest = scene.cluster.client(), 0.0
        for number, broken in enumerate((_nothing, _fails, _hangs)):
            local.register_local("vpa", broken)
            for each in range(20):
                begin = scene.now
                made = make_pod(f"pod-{number}-{each}", labels={"app": "web"}, cpu="10m")
                await client.create(POD_TYPE, made, namespace="default")
                longest = max(longest, (scene.now - begin).total_seconds())
        begin = scene.now
        await recommend(scene.cluster, "web", {"cpu": "500m", "memory": "128Mi"})
        updater = await scene.start("updater")
        await scene.pass_time(minutes=30)
        evictions = [event for event in scene.log.events if event.subresource == "eviction" and event.accepted]
        # Two replacements that come back unpatched are what it takes to know.
        assert len(evictions) <= 2
        local.register_local("vpa", healthy)
        await scene.pass_time(hours=3)
        assert {
            cpu_of(pod) for pod in ready_pods(scene.cluster, "default") if pod["metadata"].get("ownerReferences")
        } == {"500m"}
        updater.stop()
        return longest

    return play(run, main, scenario=QUARTERLY)


@drill(
    "webhook-down-under-load",
    shows="the webhook is away for a third of the time while 50 pods a second are created",
    figure="creations that failed, and pods created unpatched while it was there",
    bound=0,
    short="a quarter of a minute instead of three minutes",
)
def test_a_webhook_that_is_down_fails_no_creation(run: Run) -> float:
    seconds = 180 if run.whole else 15

    async def main(scene: Scene) -> float:
        scene.cluster.add_node("large", cpu="2000", memory="4Ti", pods=20_000)
        await scene.cluster.apply(make_deployment("web", replicas=1, cpu="1m", memory="1Mi"))
        await scene.cluster.apply(make_vpa("web", mode="Initial"))
        await recommend(scene.cluster, "web", {"cpu": "5m", "memory": "2Mi"})
        admission = await scene.start("admission", local_name="vpa")
        await scene.pass_time(minutes=1)
        client, wrong = scene.cluster.client(), 0
        local = scene.cluster.api.admission
        (owner,) = [pod["metadata"]["ownerReferences"][0] for pod in pods(scene.cluster)][:1]
        labels = pods(scene.cluster)[0]["metadata"]["labels"]
        for second in range(seconds):
            if second == seconds // 3:
                admission.kill()
                hook = local._local.pop("vpa")
            if second == 2 * seconds // 3:
                await scene.start("admission", local_name="vpa")
                await scene.pass_time(seconds=1)
                assert local._local["vpa"] is not hook
            down = seconds // 3 <= second < 2 * seconds // 3
            for number in range(50):
                made = make_pod(f"new-{second}-{number}", labels=labels, cpu="1m", memory="1Mi")
                made["metadata"]["ownerReferences"] = [owner]
                try:
                    created = await client.create(POD_TYPE, made, namespace="default")
                except KubetideError:
                    wrong += 1
                    continue
                requests = (created.spec.containers or ())[0].resources
                assert requests is not None
                wrong += not down and (requests.requests or {}).get("cpu") != "5m"
            await scene.pass_time(seconds=1)
        return wrong

    return play(run, main, scenario=QUARTERLY)


@drill(
    "certificate-rotation",
    shows="the webhook's certificate and then its CA are replaced while 50 pods a second are created through it",
    figure="pods that were not admitted or not patched",
    bound=0,
    tier="sockets, TLS",
)
def test_certificates_are_rotated_under_load(run: Run) -> float:
    webhook = module("http/test_admission_webhook.py")

    async def main() -> float:
        async with webhook.cluster(run.audit(SystemClock())) as given:
            return float(sum(not webhook.patched(pod) for pod in await webhook.rotated_under_load(given)))

    return asyncio.run(main())


@drill(
    "recommender-killed",
    shows="the recommender is killed 28 times a day while a target comes and goes",
    figure="how far a target is from that of a day without kills",
    bound=1,
    unit="%",
    short="six hours with seven kills",
)
def test_a_recommender_that_is_killed_all_day_moves_no_target(run: Run) -> float:
    hours, kills = (24, 28) if run.whole else (6, 7)

    def day(moments: set[int]) -> dict[str, int]:
        async def main(scene: Scene) -> dict[str, int]:
            for name in ("steady", "flapping"):
                await scene.cluster.apply(make_deployment(name, replicas=2, cpu="500m", memory="512Mi"))
                await scene.cluster.apply(make_vpa(name, target=name, mode="Off"))
            client, random = scene.cluster.client(), Random(1)
            replica = await scene.start("recommender")
            for minute in range(hours * 60):
                if minute % 30 == 0:
                    level = 200 + 100 * (minute // 30 % 4)
                    for name in ("steady", "flapping"):
                        scene.cluster.set_usage("default", name, cpu=f"{level}m", memory=f"{level}Mi")
                if minute % 90 == 45:
                    away = 0 if minute % 180 == 45 else 2
                    patch = MergePatch({"spec": {"replicas": away}})
                    await client.patch(DEPLOYMENT_TYPE, "flapping", patch, namespace="default")
                if minute in moments:
                    await scene.pass_time(seconds=random.uniform(0, 50))
                    replica.kill()
                    replica = await scene.start("recommender")
                await scene.pass_time(minutes=1)
            found: dict[str, int] = {}
            for name in ("steady", "flapping"):
                amounts = recommended(scene.cluster, "default", name)
                found |= {f"{name}/{resource}": amount for resource, amount in amounts.items()}
            return found

        return play(run, main, scenario=MINUTELY)

    plain = day(set())
    killed = day(set(Random(2).sample(range(60, hours * 60), kills)))
    assert len(plain) == 4
    return max(100 * abs(killed[name] - amount) / amount for name, amount in plain.items())


@drill(
    "one-large-pod",
    shows="one of ten pods of a StatefulSet needs six times the memory of its peers, and is OOM killed for it; "
    "with `--oom-floor`",
    figure="OOM kills of that pod in the last half",
    bound=0,
    short="three hours instead of twelve",
)
def test_a_pod_that_needs_six_times_its_peers_gets_it(run: Run) -> float:
    half = 6 if run.whole else 1.5

    async def main(scene: Scene) -> float:
        scene.cluster.observers.append(kills := OomKills())
        owner_of = scene.cluster.kubelets._workload_of
        scene.cluster.kubelets._workload_of = lambda pod: (
            ("default", "large") if pod["metadata"]["name"] == "db-0" else owner_of(pod)
        )
        scene.cluster.set_usage("default", "db", cpu="50m", memory="100Mi")
        scene.cluster.set_usage("default", "large", cpu="50m", memory="600Mi")
        made = make_stateful_set("db", replicas=10, cpu="100m", memory="200Mi", memory_limit="400Mi")
        await scene.cluster.apply(made)
        await scene.cluster.apply(make_vpa("db", target="db", kind="StatefulSet", mode="Recreate"))
        await scene.start("admission", local_name="vpa")
        await scene.start("recommender", oom_floor=True)
        await scene.start("updater")
        await scene.pass_time(hours=half)
        killed = kills.count["default", "large"]
        assert killed > 0
        await scene.pass_time(hours=half)
        return kills.count["default", "large"] - killed

    return play(run, main, nodes=3, scenario=QUARTERLY)


class OomKills:
    """Counts the OOM kills of workloads, from the simulated kernel."""

    def __init__(self) -> None:
        self.count: Counter[tuple[str, str]] = Counter()

    def killed(self, workload: tuple[str, str], requests: float) -> None:
        self.count[workload] += 1

    def stepped(self, now: float) -> None:
        pass


@drill(
    "cron-job-oom",
    shows="a CronJob whose pods run for five seconds, too short for any scrape, and are OOM killed",
    figure="runs that were OOM killed before its memory was enough",
    bound=12,
    unit="runs",
)
def test_a_job_too_short_to_be_measured_learns_from_its_oom_kills(run: Run) -> float:
    async def main(scene: Scene) -> float:
        job = make_cron_job(
            "report", schedule="*/5 * * * *", cpu="50m", memory="100Mi", memory_limit="100Mi", backoff_limit=0
        )
        await scene.cluster.apply(job)
        await scene.cluster.apply(
            make_vpa("report", target="report", kind="CronJob", api_version="batch/v1", mode="Initial")
        )
        profile = scene.cluster.model.profile_of(("default", "report"))
        scene.cluster.set_profile(
            "default", "report", replace(profile, memory_base=300.0 * MIB, work=5.0, start_seconds=0.0)
        )
        await scene.start("admission", local_name="vpa")
        await scene.start("recommender")
        scene.cluster.observers.append(kills := OomKills())
        await scene.pass_time(hours=1)
        killed = sum(kills.count.values())
        assert killed > 0
        await scene.pass_time(minutes=30)
        assert sum(kills.count.values()) == killed, "it is still OOM killed"
        return killed

    return play(run, main)


@drill(
    "churn-100-pods",
    shows="a hundred pods are replaced every 30 seconds for a day under the whole recommender",
    figure="growth of memory after the first hour",
    bound=10,
    unit="MiB",
    short="half an hour, after the first ten minutes",
)
def test_a_day_of_churn_leaves_nothing_in_memory(run: Run) -> float:
    duration, first = (timedelta(hours=24), 60) if run.whole else (timedelta(minutes=30), 10)
    measures = recommender_churn.soak(duration, every=timedelta(minutes=first), audit=run.audit_on_disk)
    settled, last = measures[1], measures[-1]
    assert last.containers == last.pods * len(recommender_churn.CONTAINERS)
    return max(last.heap_mib - settled.heap_mib, 0.0)
