"""Hostile neighbours: metrics without measure, permissions that grow, a Prometheus with limits and outages."""

import asyncio
import os
import shutil
import tracemalloc
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from cluster.test_hpa_faults import FLOOD, answer, first, usage
from drills.drill import Run, drill, needs
from drills.existing import module, run_tests
from drills.stage import MASTERS, Scene, play
from drills.test_horizontal import AT_ONCE, count
from embedded_server import running
from kubetide import crds
from kubetide.api.values.quantity import parse_quantity
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.rest.requests import User
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.load.scenario import Scenario
from kubetide.install.objects import manifests
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import METRICS_LIMIT, Response
from kubetide.kube.control.manager import running as working
from kubetide.kube.control.recorder import EventRecorder
from kubetide.settings import COMPONENTS
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_container, make_deployment, make_hpa, make_pod, make_vpa
from kubetide.vpa.recommender.loop import Recommender
from simulated.recommending import VPAS as VPA_KIND
from simulated.recommending import recommended
from simulated.usage import PodUsageOnly

MIB = 2**20
AUTOSCALER = User("kubetide-hpa-1", MASTERS)
GOLDEN = Path(__file__).parent / "permissions.golden"


@drill(
    "hostile-bodies",
    shows="the metrics API answers with a gibibyte, with an endless list, and with 110 MiB that come compressed "
    "to 110 KiB",
    figure="most memory that is held for it at once",
    bound=2 * METRICS_LIMIT / MIB,
    unit="MiB",
    tier="sockets",
)
def test_a_body_without_measure_is_cut_off(run: Run) -> float:
    hostile = module("http/test_hpa_hostile_metrics.py")

    async def one(way: str) -> None:
        metrics = hostile.Metrics(way)
        log = run.audit(hostile.CLOCK)
        users = {AUTOSCALER.name: AUTOSCALER}
        async with hostile.running(audit=log, tokens=users) as server, hostile.served(metrics) as served:
            await hostile.prepare(server)
            routed = hostile.Routed(server.transport(AUTOSCALER.name), served)
            client = Client(routed, clock=hostile.CLOCK, rng=Random(1))
            async with hostile.autoscaler(client), asyncio.timeout(600):
                while len(metrics.sent) < 3 or not (await hostile.active(client))[0]:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.05)
                assert await hostile.replicas(client) == 3
            await client.close()

    hostile.blanks()  # the server's own preparation is not the client's cost
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    vars(hostile)["LONG"] = 1 << 30
    for way in ("streamed", "declared", "endless"):
        asyncio.run(one(way))
    vars(hostile)["LONG"] = 110 << 20
    asyncio.run(one("compressed"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (peak - before) / MIB


HOSTILE: dict[str, Any] = {
    "not a number": lambda c: usage(c, first("NaN")),
    "infinite": lambda c: usage(c, first("+Inf")),
    "1e308": lambda c: usage(c, first("1e308")),
    "-1e308": lambda c: usage(c, first("-1e308")),
    "words": lambda c: usage(c, first("twelve")),
    "of tomorrow": lambda c: usage(c, first("1m"), timestamp=(c.clock.now() + timedelta(days=1)).isoformat()),
    "of yesterday": lambda c: usage(c, first("1m"), timestamp=(c.clock.now() - timedelta(days=1)).isoformat()),
    "labelled beyond measure": lambda c: _labelled(c),
    "empty": lambda c: {"items": []},
    "no JSON": lambda c: b"\x00\xff" * 100,
    "nested beyond measure": lambda c: b"[" * 100_000,
}


def _labelled(cluster: Any) -> Any:
    flooded = usage(cluster, lambda number: "225m")
    for item in flooded["items"]:
        item["metadata"]["labels"] = {**FLOOD, "app": "web"}
    return flooded


@drill(
    "hostile-values",
    shows="usage that is not a number, infinite, 1e308, of another day, labelled with 20,000 labels, empty or no "
    "JSON: for "
    "five minutes each, with a window of zero, under the autoscaler and the recommender",
    figure="counts and recommendations that moved",
    bound=0,
)
def test_values_that_cannot_be_true_move_nothing(run: Run) -> float:
    async def main(scene: Scene) -> float:
        cluster = scene.cluster
        await cluster.apply(make_deployment("web", replicas=4, cpu="500m", memory="64Mi"))
        await cluster.apply(make_hpa("web", maximum=20, cpu_percent=50, behavior=AT_ONCE))
        await cluster.apply(make_vpa("web", mode="Off"))
        cluster.set_load("default", "web", 90.0)
        replicas = [await scene.start("hpa"), await scene.start("recommender")]
        await scene.pass_time(minutes=30)
        begin, moved = scene.now, 0
        before = recommended(cluster, "default", "web")
        assert count(scene) == 4
        assert before
        for make in HOSTILE.values():

            def interfere(method: str, path: str, make: Any = make) -> Response | None:
                return answer(make(cluster)) if path.startswith("/apis/metrics.k8s.io/") else None

            for replica in replicas:
                replica.requests.interfere = interfere
            await scene.pass_time(minutes=5)
            moved += count(scene) != 4
        after = recommended(cluster, "default", "web")
        moved += sum(abs(after[name] - amount) > 0.02 * amount for name, amount in before.items())
        scene.since(begin, "usage could not be believed")
        return moved

    return play(run, main, nodes=3, scenario=Scenario(tick="15s"))


def permissions() -> str:
    """Return every permission of every component, one to a line, in order."""
    lines = set()
    for name in (*COMPONENTS, "node"):
        for each in manifests((name,), namespace="kube-system", image="x"):
            if each["kind"] not in ("ClusterRole", "Role"):
                continue
            where = each["metadata"].get("namespace", "*")
            for rule in each["rules"]:
                for group in rule.get("apiGroups", [""]):
                    for what in rule.get("resources", rule.get("nonResourceURLs", [])):
                        names = ",".join(sorted(rule.get("resourceNames", ["*"])))
                        verbs = ",".join(sorted(rule["verbs"]))
                        lines.add(f"{name:12} {where:20} {group or 'core':32} {what:40} {names:40} {verbs}".rstrip())
    return "\n".join(sorted(lines)) + "\n"


@drill(
    "permissions",
    shows="what every component may do is what a reviewed file says, to the verb "
    "(`KUBETIDE_GOLDEN=write` writes it anew)",
    figure="permissions more or fewer than in the file",
    bound=0,
    tier="pure",
)
def test_permissions_are_those_of_the_golden_file(run: Run) -> float:
    found = permissions()
    if os.environ.get("KUBETIDE_GOLDEN") == "write":
        GOLDEN.write_text(found)
    return float(len(set(found.splitlines()) ^ set(GOLDEN.read_text().splitlines())))


@drill(
    "prometheus-back-fill",
    shows="eight days of history are read from a real Prometheus within its limit of samples, in slices, and after an "
    "outage; then a recommender starts while it is down, and waits: what it publishes is what live samples would have "
    "given, and until then what was recommended before stays",
    figure="amounts of that recommendation, of four, that differ, and tests of that tier that fail",
    bound=0,
    tier="real Prometheus, sockets",
)
def test_history_is_filled_in_from_prometheus(run: Run) -> float:
    found = shutil.which("prometheus") is not None and shutil.which("promtool") is not None
    needs(found, "no Prometheus: install the Debian package prometheus")
    differing = asyncio.run(_back_fill(run))
    return float(differing + run_tests("prom/test_prometheus_history.py", run.folder))


class NoUsage(PodUsageOnly):
    """A metrics API that has seen nothing yet."""


CONTAINERS = ("main", "sidecar")


async def _back_fill(run: Run) -> int:
    past = module("prom/test_prometheus_history.py")
    (run.folder / "prometheus").mkdir()
    store, port, user = (
        past.filled(run.folder / "prometheus"),
        past.free_port(),
        User("kubetide-recommender-1", MASTERS),
    )
    async with running(audit=run.audit(SystemClock()), tokens={user.name: user}) as server:
        server.api.metrics_provider = NoUsage()
        _fill(server.api)
        transport, clock = server.transport(user.name), past.FixedClock()
        client, telemetry = Client(transport, clock=clock, rng=Random(1)), Telemetry()
        settings = past.settings_for(f"http://127.0.0.1:{port}", interval=timedelta(seconds=1))
        recorder = EventRecorder(client, clock=clock, component="recommender")
        begin = SystemClock().now()
        async with working(Recommender(client, clock, settings, telemetry, recorder, Random(2)), recorder):
            await asyncio.sleep(5)
            assert _published(server.api) == dict.fromkeys(CONTAINERS, BEFORE)
            run.doubt(begin, SystemClock().now(), "history could not be read")
            async with past.prometheus(store, port), asyncio.timeout(120):
                while _published(server.api) == dict.fromkeys(CONTAINERS, BEFORE):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.1)
        await client.close()
        published = _published(server.api)
    live = past.fed_live(past.generated(8), 8)
    state = past.with_vpa(live)
    wanted = {entry.container: entry.target for entry in past.recommend(live, [state], past.Options())[state.key]}
    assert set(published) == set(wanted) == set(CONTAINERS)
    return sum(
        parse_quantity(published[name][resource]) != amount
        for name, amounts in wanted.items()
        for resource, amount in amounts.items()
    )


BEFORE = {"cpu": "3", "memory": "3Gi"}


def _fill(api: ApiServer) -> None:
    """Make the workload whose history there is, with a recommendation of last week."""
    containers = [make_container(name, cpu="100m", memory="64Mi") for name in CONTAINERS]
    for each in (*crds.load_all(), make_deployment("web", replicas=3, cpu="100m")):
        api.insert(each)
    for number in range(3):
        labels = {"app": "web"}
        api.insert(
            make_pod(f"web-{number}", labels=labels, containers=containers, node="n", phase="Running", ready=True)
        )
    bounds = dict.fromkeys(("target", "lowerBound", "upperBound", "uncappedTarget"), BEFORE)
    given = [{"containerName": name, **bounds} for name in CONTAINERS]
    provided = {"type": "RecommendationProvided", "status": "True", "lastTransitionTime": "2026-03-01T00:00:00Z"}
    status = {"conditions": [provided], "recommendation": {"containerRecommendations": given}}
    api.insert({**make_vpa("web", mode="Off"), "status": status})


def _published(api: ApiServer) -> dict[str, Any]:
    found = api.store.get(VPA_KIND, StoreKey("default", "web"))
    assert found is not None
    given = found.obj["status"]["recommendation"]["containerRecommendations"]
    return {entry["containerName"]: entry["target"] for entry in given}
