"""`kubetide recommend` on a simulated cluster: every kind of workload, every source, every failure in one line."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fake_prometheus import FakePrometheus
from kubetide import crds
from kubetide.api.objects.scheme import EVENTS, VPAS
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import InvalidInput, KubetideError, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError
from kubetide.kube.client.transport import Response, Transport
from kubetide.recommend.cluster import Selection, kind_named
from kubetide.recommend.core.money import Price
from kubetide.recommend.core.patches import layout, patch, vpas
from kubetide.recommend.core.rows import Row, rows
from kubetide.recommend.core.sizing import LimitPolicy, Options
from kubetide.recommend.core.workloads import Estimate, key_of
from kubetide.recommend.gathering import Gathered, Sources, gather
from kubetide.recommend.manifest_edits import edit_repository
from kubetide.recommend.metrics_usage import Watch
from kubetide.recommend.opencost import averaged
from kubetide.recommend.outputs.table import table
from kubetide.recommend.prometheus_usage import CPU_METRIC, Question
from kubetide.recommend.vpa_marks import read_marks
from kubetide.testing.builders import (
    make_cron_job,
    make_daemon_set,
    make_deployment,
    make_hpa,
    make_job,
    make_stateful_set,
    make_vpa,
)
from simulated.cluster import pods, run

Raw = dict[str, Any]


ROLLOUT_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rollouts.argoproj.io"},
    "spec": {
        "group": "argoproj.io",
        "scope": "Namespaced",
        "names": {"plural": "rollouts", "singular": "rollout", "kind": "Rollout", "listKind": "RolloutList"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "subresources": {
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
                },
            }
        ],
    },
}


def on_cluster(
    objects: list[Raw], check: Callable[[SimCluster, Client], Awaitable[None]], *, transport: Any = None
) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(objects)
        await cluster.run_for(timedelta(seconds=60))
        client = cluster.client() if transport is None else Client(transport(cluster.transport()), clock=cluster.clock)
        await check(cluster, client)

    run(main, nodes=1)


def made(found: Gathered) -> list[Row]:
    bounds = {"": found.state.bounds}
    return rows(found.state.workloads, found.usage, bounds=bounds, why_missing=found.missing)


def test_every_kind_gets_a_row_and_what_is_owned_gets_none() -> None:
    bare = make_deployment("bare", cpu="1")
    bare["kind"] = "ReplicaSet"
    rollout = {**make_deployment("canary", cpu="1"), "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}

    async def check(cluster: SimCluster, client: Client) -> None:
        await cluster.apply(rollout)
        found = await gather(client, cluster.clock, Selection(), Sources())
        kinds = sorted((row.kind, row.name) for row in made(found))
        assert kinds == [
            ("CronJob", "report"),
            ("DaemonSet", "logs"),
            ("Deployment", "web"),
            ("Job", "import"),
            ("ReplicaSet", "bare"),
            ("Rollout", "canary"),
            ("StatefulSet", "db"),
        ]
        assert {row.risk for row in made(found)} == {"unknown"}
        assert all("no usage in VPA checkpoints; --watch-for" in row.reason for row in made(found))
        only = await gather(
            client, cluster.clock, Selection(labels="app=web", kinds=frozenset({"deployment"})), Sources()
        )
        assert [row.name for row in made(only)] == ["web"]
        for text, name in (
            ("deploy", "web"),
            ("Deployment", "web"),
            ("deployments.apps", "web"),
            ("rollouts", "canary"),
            ("rollout.argoproj.io", "canary"),
            ("sts", "db"),
        ):
            only = await gather(client, cluster.clock, Selection(kinds=frozenset({kind_named(text)})), Sources())
            assert [row.name for row in made(only)] == [name]
        with pytest.raises(
            InvalidInput, match="--kind: no workload is of kind 'pod'; there are: CronJob, DaemonSet, De"
        ):
            await gather(client, cluster.clock, Selection(kinds=frozenset({"pod"})), Sources())

    objects = [
        ROLLOUT_CRD,
        make_deployment("web", replicas=2, cpu="1"),
        make_stateful_set("db", cpu="1"),
        make_daemon_set("logs", cpu="1"),
        make_job("import", cpu="1"),
        make_cron_job("report", cpu="1"),
        bare,
    ]
    on_cluster(objects, check)


def rolled_out(name: str, spec: Raw, *, kind: str = "Rollout") -> Raw:
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def replica_set_of(cluster: SimCluster, client: Client, rollout: str, name: str) -> None:
    """Make what the controller of a Rollout makes."""
    path = f"/apis/argoproj.io/v1alpha1/namespaces/default/rollouts/{rollout}"
    uid = json.loads((await client.request("GET", path)).body)["metadata"]["uid"]
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": rollout, "uid": uid, "controller": True}
    made = {**make_deployment(name, replicas=2, cpu="1"), "kind": "ReplicaSet"}
    made["metadata"]["ownerReferences"] = [owner]
    await cluster.apply(made)
    await cluster.run_for(timedelta(seconds=60))


def test_a_rollout_that_refers_to_a_deployment_is_sized_there() -> None:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}

    async def check(cluster: SimCluster, client: Client) -> None:
        await cluster.apply([rolled_out("canary", {"replicas": 2, "workloadRef": reference})])
        await replica_set_of(cluster, client, "canary", "canary-7d9f8c6b54")
        names = [pod["metadata"]["name"] for pod in pods(cluster, app="canary-7d9f8c6b54")]
        departed = "canary-6c5d4b7f88-x2k7z"
        fake = FakePrometheus(dict.fromkeys([*names, departed], (0.3, 400 * 2**20)))
        sources = Sources(prometheus=fake, question=Question(history=timedelta(days=8)))
        for selection in (Selection(), Selection(kinds=frozenset({"rollout"})), Selection(name="canary")):
            found = await gather(client, cluster.clock, selection, sources)
            (row,) = made(found)
            assert (row.kind, row.name, row.replicas) == ("Deployment", "web", 2)
            assert row.recommended is not None
            # 300 m are half of it: the target of the Rollout's HPA.
            assert (row.recommended.cpu_request_millis, row.evidence.pods, row.evidence.departed_pods) == (600, 3, 1)
            assert row.notes[-1] == "its pods are made by Rollout canary, from this template"
            assert patch([row])["metadata"]["name"] == "web"
            assert vpas([row])[0]["spec"]["targetRef"]["name"] == "canary"

    hpa = make_hpa("web", target="canary", minimum=2, maximum=2, cpu_percent=50)
    hpa["spec"]["scaleTargetRef"] |= {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}
    on_cluster([ROLLOUT_CRD, make_deployment("web", replicas=0, cpu="2", memory="1Gi"), hpa], check)


def test_a_custom_resource_without_a_template_says_so_and_gets_no_patch() -> None:
    gone = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gone"}

    async def check(cluster: SimCluster, client: Client) -> None:
        await cluster.apply(
            [
                rolled_out("odd", {"replicas": 2, "template": "of another shape"}),
                rolled_out("empty", {"replicas": 2}),
                rolled_out("lost", {"workloadRef": gone}),
            ]
        )
        await replica_set_of(cluster, client, "odd", "odd-7d9f8c6b54")
        names = [pod["metadata"]["name"] for pod in pods(cluster, app="odd-7d9f8c6b54")]
        fake = FakePrometheus(dict.fromkeys(names, (0.3, 400 * 2**20)))
        sources = Sources(prometheus=fake, question=Question(history=timedelta(days=8)))
        found = {row.name: row for row in made(await gather(client, cluster.clock, Selection(), sources))}
        assert found["odd"].recommended is not None
        assert found["odd"].container == "main"
        assert found["odd"].notes[-1] == "no pod template at spec.template: sizes of its pods today, and no patch"
        assert found["empty"].reason == "no pod template at spec.template: nothing to size, and no patch"
        assert "its pod template is that of Deployment gone, which was not found" in found["lost"].reason
        files, left_out = layout("kubectl", list(found.values()))
        assert files == {}
        assert left_out == ["Rollout default/odd: no patch, it has no pod template that could be found"]
        lines = [str(line) for line in table(list(found.values()))]
        assert any(line.startswith("default/empty rollout ") and "[" not in line for line in lines)

    on_cluster([ROLLOUT_CRD], check)


def test_patches_change_sizes_and_nothing_else_and_know_the_containers() -> None:
    held = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "ephemeral-storage": "1Gi"}}
    containers = [{"name": "proxy", "image": "x"}, {"name": "main", "image": "x", "resources": held}]
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": containers}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "w"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    paths = {"Deployment": "/apis/apps/v1/namespaces/default/deployments/web"}
    paths["Rollout"] = "/apis/argoproj.io/v1alpha1/namespaces/default/rollouts/canary"
    types = {"Deployment": "application/strategic-merge-patch+json", "Rollout": "application/json-patch+json"}

    async def check(cluster: SimCluster, client: Client) -> None:
        await cluster.apply([rolled_out("canary", {**spec, "strategy": {"canary": {"steps": [{"setWeight": 20}]}}})])
        workloads = (await gather(client, cluster.clock, Selection(), Sources())).state.workloads
        given = Estimate(cpu_millis=300, memory_bytes=2**29, days=9, samples=9000, source="VPA checkpoint")
        estimates = {key_of(each, one.name): given for each in workloads for one in each.containers}
        files, left_out = layout("kubectl", rows(workloads, estimates, Options(limits=LimitPolicy.NONE)))
        assert (len(files), left_out) == (2, [])
        for file in files.values():
            kind = "Rollout" if isinstance(file.document, list) else "Deployment"
            before = json.loads((await client.request("GET", paths[kind])).body)
            body = json.dumps(file.document).encode()
            await client.request("PATCH", paths[kind], body=body, content_type=types[kind])
            after = json.loads((await client.request("GET", paths[kind])).body)
            wanted = json.loads(json.dumps(before["spec"]))
            proxy, main = wanted["template"]["spec"]["containers"]
            sizes = {"cpu": "300m", "memory": "512Mi"}
            proxy["resources"] = {"requests": sizes}
            main["resources"] = {
                "requests": {**main["resources"]["requests"], **sizes},
                "limits": {"ephemeral-storage": "1Gi"},
            }
            assert after["spec"] == wanted
            if kind == "Rollout":
                wanted["template"]["spec"]["containers"].reverse()
                moved = json.dumps({"spec": wanted}).encode()
                await client.request("PATCH", paths[kind], body=moved, content_type="application/merge-patch+json")
                with pytest.raises(ApiError, match="test"):
                    await client.request("PATCH", paths[kind], body=body, content_type=types[kind])

    on_cluster([ROLLOUT_CRD, deployment], check)


def test_what_an_operator_makes_has_the_row_and_no_patch_that_it_would_undo(tmp_path: Path) -> None:
    async def check(cluster: SimCluster, client: Client) -> None:
        await cluster.apply([rolled_out("main", {"replicas": 1})])
        path = "/apis/argoproj.io/v1alpha1/namespaces/default/rollouts/main"
        uid = json.loads((await client.request("GET", path)).body)["metadata"]["uid"]
        owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "main", "uid": uid}
        made_of_it = make_stateful_set("db", cpu="1")
        made_of_it["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        await cluster.apply(made_of_it)
        await cluster.run_for(timedelta(seconds=60))
        sources = Sources(prometheus=FakePrometheus({"db-0": (0.3, 400 * 2**20)}), question=Question())
        for selection in (Selection(), Selection(kinds=frozenset({"rollout"})), Selection(name="main")):
            found = made(await gather(client, cluster.clock, selection, sources))
            assert [(row.kind, row.name, row.managed_by) for row in found] == [("StatefulSet", "db", "Rollout main")]
            assert found[0].recommended is not None
            assert "Rollout main makes it: set sizes there, a patch would be undone" in found[0].notes
            why = "Rollout main makes it: set sizes there"
            assert layout("kubectl", found) == ({}, [f"StatefulSet default/db: no patch, {why}"])
            assert edit_repository(tmp_path, found) == ("", [f"StatefulSet default/db: {why}"])

    on_cluster([ROLLOUT_CRD], check)


def test_prometheus_gives_rows_with_departed_pods_and_the_hpa() -> None:
    async def check(cluster: SimCluster, client: Client) -> None:
        names = [pod["metadata"]["name"] for pod in pods(cluster, app="web")]
        fake = FakePrometheus(dict.fromkeys([*names, "web-7d9f8c6b54-x2k7z", "other-0"], (0.3, 400 * 2**20)))
        question = Question(history=timedelta(days=8))
        found = await gather(client, cluster.clock, Selection(), Sources(prometheus=fake, question=question))
        row = next(iter(made(found)))
        assert row.recommended is not None
        assert row.recommended.cpu_request_millis == 600  # 300 m are half of it: the target of the HPA
        assert (row.evidence.pods, row.evidence.departed_pods) == (3, 1)
        assert row.evidence.samples == 3 * 8 * 288
        assert (row.confidence, row.risk) == ("high", "none")
        for form in fake.asked:
            if "step" in form:
                points = (int(form["end"]) - int(form["start"])) // int(form["step"]) + 1
                assert points < 11_000
            assert re.search('namespace="default"', form["query"])

    hpa = make_hpa("web", target="web", minimum=2, maximum=2, cpu_percent=50)
    on_cluster([make_deployment("web", replicas=2, cpu="2", memory="1Gi"), hpa], check)


def test_a_target_of_an_hpa_for_one_container_is_read_as_that() -> None:
    async def check(cluster: SimCluster, client: Client) -> None:
        (workload,) = (await gather(client, cluster.clock, Selection(), Sources())).state.workloads
        assert workload.utilization == {"cpu/main": 50}
        assert workload.utilization_of("main") == {"cpu": 50}
        assert workload.utilization_of("proxy") == {}

    hpa = make_hpa("web", target="web", minimum=1, maximum=2, cpu_percent=50)
    (metric,) = hpa["spec"]["metrics"]
    hpa["spec"]["metrics"] = [
        {"type": "ContainerResource", "containerResource": {**metric["resource"], "container": "main"}}
    ]
    on_cluster([make_deployment("web", cpu="2"), hpa], check)


@pytest.mark.parametrize("lists", [("other-1", "web-2.x"), None], ids=["by pods", "as a whole"])
def test_a_large_namespace_is_asked_for_by_the_pods_of_its_workloads(lists: Sequence[str] | None) -> None:
    async def check(cluster: SimCluster, client: Client) -> None:
        known = dict.fromkeys([f"db-{i}" for i in range(6)] + ["other-0"], (0.3, 400 * 2**20))
        fake = FakePrometheus(known, lists=lists)
        question = Question(history=timedelta(days=4), per_query=2 * 480)
        found = await gather(client, cluster.clock, Selection(), Sources(prometheus=fake, question=question))
        (row,) = made(found)
        assert (row.evidence.pods, row.evidence.samples) == (6, 6 * 4 * 288)
        ranges = [form for form in fake.asked if CPU_METRIC in form["query"] and "step" in form]
        asked = {pods[1] for form in ranges if (pods := re.search('pod=~"([^"]*)"', form["query"]))}
        if lists is None:
            assert asked == set()
            assert found.cost.samples == 7 * 4 * (288 + 24)
            return
        assert asked == {"db-0|db-3", "db-1|db-4", "db-2|db-5"}
        assert found.cost.samples == 6 * 4 * (288 + 24)
        ((path, form),) = fake.listed
        assert path == "/api/v1/label/pod/values"
        assert 'namespace="default"' in form["match[]"]
        assert int(form["end"]) - int(form["start"]) == 4 * 86400 - 300

    on_cluster([make_stateful_set("db", cpu="1")], check)


def test_an_outage_delays_and_silence_is_one_line() -> None:
    async def check(cluster: SimCluster, client: Client) -> None:
        name = pods(cluster, app="web")[0]["metadata"]["name"]
        question = Question(history=timedelta(days=1))
        away = FakePrometheus({name: (0.3, 2**28)}, fail=3)
        found = await gather(client, cluster.clock, Selection(), Sources(prometheus=away, question=question))
        assert made(found)[0].evidence.samples == 288
        began = cluster.clock.monotonic()
        never = FakePrometheus({}, fail=1000)
        with pytest.raises(KubetideError, match="Prometheus is away"):
            await gather(client, cluster.clock, Selection(), Sources(prometheus=never, question=question))
        assert cluster.clock.monotonic() - began < 60
        with pytest.raises(KubetideError, match="container_memory_working_set_bytes with the labels namespace, pod"):
            await gather(client, cluster.clock, Selection(), Sources(prometheus=FakePrometheus({}), question=question))
        wrong = FakePrometheus({}, fail=-1)
        with pytest.raises(KubetideError, match="check --prometheus-token or --prometheus-user: status 401: <html> Un"):
            await gather(client, cluster.clock, Selection(), Sources(prometheus=wrong, question=question))
        little = Question(history=timedelta(days=14), budget=10)
        with pytest.raises(InvalidInput, match="--budget"):
            await gather(client, cluster.clock, Selection(), Sources(prometheus=away, question=little))
        with pytest.raises(InvalidInput, match="no Service of the cluster is Prometheus"):
            await gather(client, cluster.clock, Selection(), Sources(find_prometheus=True, must_find=True))

    on_cluster([make_deployment("web", cpu="2")], check)


def test_what_runs_now_and_then_is_found_too() -> None:
    async def check(cluster: SimCluster, client: Client) -> None:
        fake = FakePrometheus({"nightly-29916126-x2k7z": (0.3, 400 * 2**20)}, resting=True)
        question = Question(history=timedelta(days=2))
        found = await gather(client, cluster.clock, Selection(), Sources(prometheus=fake, question=question))
        assert made(found)[0].recommended is not None
        assert fake.asked[2]["query"].endswith("[172800s]))")

    nightly = make_cron_job("nightly", cpu="1")
    nightly["spec"]["schedule"] = "0 3 1 1 *"
    on_cluster([nightly], check)


def test_a_step_widens_until_the_budget_suffices() -> None:
    async def check(cluster: SimCluster, client: Client) -> None:
        name = pods(cluster, app="web")[0]["metadata"]["name"]
        fake = FakePrometheus({name: (0.3, 2**28)})
        question = Question(history=timedelta(days=2), budget=2 * 192)
        await gather(client, cluster.clock, Selection(), Sources(prometheus=fake, question=question))
        steps = {form["step"] for form in fake.asked if CPU_METRIC in form["query"]}
        assert steps == {"900"}

    on_cluster([make_deployment("web", cpu="2")], check)


def test_days_are_folded_at_prometheus_where_no_step_suffices() -> None:
    async def check(cluster: SimCluster, client: Client) -> None:
        name = pods(cluster, app="web")[0]["metadata"]["name"]
        fake = FakePrometheus({name: (0.3, 400 * 2**20)})
        question = Question(history=timedelta(days=14), budget=2 * 14)
        found = await gather(client, cluster.clock, Selection(), Sources(prometheus=fake, question=question))
        row = next(iter(made(found)))
        assert any(form["query"].startswith("quantile_over_time(0.95, rate(") for form in fake.asked)
        assert row.recommended is not None
        assert (row.recommended.cpu_request_millis or 0) >= 300
        assert row.confidence == "medium"
        assert "an upper bound, from p95 of CPU" in row.reason
        assert row.evidence.with_recommended is not None
        assert row.evidence.with_recommended.cpu_minutes_above is None

    on_cluster([make_deployment("web", cpu="2")], check)


def test_the_metrics_api_is_collected_for_a_while() -> None:
    async def check(cluster: SimCluster, client: Client) -> None:
        watch = Watch(timedelta(minutes=10))
        found = await gather(client, cluster.clock, Selection(), Sources(watch=watch))
        row = made(found)[0]
        assert (row.evidence.source, row.evidence.pods, row.confidence) == ("metrics API", 1, "low")
        assert row.evidence.samples >= 30
        assert row.recommended is not None

    on_cluster([make_deployment("web", cpu="500m", memory="256Mi")], check)


class Answering:
    """A server behind which some paths answer something else; a number is the code of an error."""

    def __init__(self, inner: Transport, answers: Mapping[str, Any]) -> None:
        self._inner, self._answers = inner, answers
        self.close, self.watch = inner.close, inner.watch

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        for start, answer in self._answers.items():
            if path.startswith(start):
                code = answer if isinstance(answer, int) else 200
                body = {"kind": "Status", "code": code, "message": "no"} if code != 200 else answer
                return Response(status=code, headers={}, body=json.dumps(body).encode())
        return await self._inner.request(method, path, **parts)


def test_a_prometheus_that_nobody_named_and_that_may_not_be_asked_is_no_error() -> None:
    proxy = "/api/v1/namespaces/default/services/prometheus:9090/proxy"

    async def check(cluster: SimCluster, client: Client) -> None:
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "prometheus"}}
        await cluster.apply({**service, "spec": {"ports": [{"port": 9090}]}})
        watch = Watch(timedelta(minutes=10))
        found = await gather(client, cluster.clock, Selection(), Sources(find_prometheus=True, watch=watch))
        assert [row.evidence.source for row in made(found)] == ["metrics API"]
        said = "Prometheus cannot be used: give its URL with --prometheus: status 403: no"
        assert found.state.problems == [said]
        with pytest.raises(KubetideError, match=said):
            await gather(client, cluster.clock, Selection(), Sources(find_prometheus=True, must_find=True))

    on_cluster([make_deployment("web", cpu="2")], check, transport=lambda inner: Answering(inner, {proxy: 403}))


def test_node_agents_stand_in_for_the_metrics_api() -> None:
    reports: Raw = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetricList", "metadata": {}, "items": []}

    async def check(cluster: SimCluster, client: Client) -> None:
        watch = Watch(timedelta(minutes=10))
        with pytest.raises(Unavailable, match="neither the metrics API nor NodeMetrics of node agents are here"):
            await gather(client, cluster.clock, Selection(), Sources(watch=watch))
        name = pods(cluster, app="web")[0]["metadata"]["name"]
        used = {"cpu": "300m", "memory": "400Mi"}
        known = [{"namespace": "default", "name": each, "podUsage": {"resources": used}} for each in (name, "other")]
        reports["items"] = [{"metadata": {"name": "node-1"}, "status": {"podsMetric": known}}]
        found = await gather(client, cluster.clock, Selection(), Sources(watch=watch))
        row = next(each for each in made(found) if each.name == "web")
        assert (row.evidence.source, row.evidence.pods, row.evidence.samples) == ("node agents", 1, 40)
        assert row.recommended is not None
        assert (row.recommended.cpu_request_millis or 0) >= 300

    away = {"/apis/metrics.k8s.io/": 404, "/apis/slo.koordinator.sh/": reports}
    on_cluster([make_deployment("web", cpu="2")], check, transport=lambda inner: Answering(inner, away))


def test_prices_come_from_opencost_where_it_is() -> None:
    costs = {"cpuCoreHours": 48.0, "cpuCost": 1.44, "ramByteHours": 24 * 8 * 2**30, "ramCost": 0.768}
    there = "/api/v1/namespaces/default/services/opencost:9003/proxy/allocation"
    idle = {"cpuCoreHours": 0.0, "ramByteHours": 0.0}

    async def check(cluster: SimCluster, client: Client) -> None:
        fake = FakePrometheus({pods(cluster, app="web")[0]["metadata"]["name"]: (0.3, 400 * 2**20)})
        sources = Sources(prometheus=fake, question=Question(history=timedelta(days=8)), opencost=True)
        assert (await gather(client, cluster.clock, Selection(), sources)).prices == {}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "opencost"}}
        await cluster.apply({**service, "spec": {"ports": [{"port": 9003}]}})
        found = await gather(client, cluster.clock, Selection(), sources)
        assert found.prices == {"node-1": Price(0.03, 0.004)}
        prices = averaged({"": found.prices})
        row = rows(found.state.workloads, found.usage, prices=prices)[0]
        cpu, gib = row.saved_cpu_millis / 1000, row.saved_memory_bytes / 2**30
        assert row.saved_money == pytest.approx(730 * (0.03 * cpu + 0.004 * gib))

    async def broken(cluster: SimCluster, client: Client) -> None:
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "opencost"}}
        await cluster.apply({**service, "spec": {"ports": [{"port": 9003}]}})
        found = await gather(client, cluster.clock, Selection(), Sources(opencost=True))
        assert "no prices from OpenCost: " in found.state.problems[0]
        assert averaged({"": found.prices}) is None

    answer = {"code": 200, "data": [{"node-1": costs, "__idle__": idle}, None]}
    web = make_deployment("web", cpu="2", memory="4Gi")
    on_cluster([web], check, transport=lambda inner: Answering(inner, {there: answer}))
    on_cluster([web], broken, transport=lambda inner: Answering(inner, {there: 403}))


def test_a_plot_knows_the_vpa_of_a_workload_and_the_evictions_of_its_pods() -> None:
    async def check(cluster: SimCluster, client: Client) -> None:
        await cluster.apply([crds.load("verticalpodautoscalers"), make_vpa("web", target="web")])
        advice = {"containerName": "main", "target": {"cpu": "300m"}, "upperBound": {"cpu": "1"}}
        status = {"status": {"recommendation": {"containerRecommendations": [advice]}}}
        await client.patch(VPAS, "web", MergePatch(status), namespace="default", subresource="status")
        for number, (pod, reason) in enumerate((("web-7d9f8c6b54-x2k7z", "EvictedByVPA"), ("db-0", "EvictedByVPA"))):
            about = {"kind": "Pod", "namespace": "default", "name": pod}
            body = {"metadata": {"name": f"e{number}"}, "involvedObject": about, "reason": reason}
            await client.create(EVENTS, {**body, "lastTimestamp": "2026-01-01T00:00:00Z"}, namespace="default")
        state = (await gather(client, cluster.clock, Selection(name="web"), Sources())).state
        marks = await read_marks(client, state.workloads[0], state.problems)
        assert marks["main"].target.cpu_millis == 300
        assert marks["main"].upper.cpu_millis == 1000
        assert marks["main"].evictions == (1767225600.0,)
        assert marks["main"].resizes == ()

    on_cluster([make_deployment("web", cpu="2")], check)


class Forbidding:
    """A server that lets nobody list some paths."""

    def __init__(self, inner: Transport, pattern: str) -> None:
        self._inner, self._pattern = inner, pattern
        self.close, self.watch = inner.close, inner.watch

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        if re.search(self._pattern, path):
            body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": f"{path} is forbidden"}
            return Response(status=403, headers={}, body=json.dumps(body).encode())
        return await self._inner.request(method, path, **parts)


def test_what_may_not_be_listed_is_named_and_nothing_at_all_is_an_error() -> None:
    async def some(cluster: SimCluster, client: Client) -> None:
        found = await gather(client, cluster.clock, Selection(), Sources())
        assert [row.name for row in made(found)] == ["web"]
        assert [problem for problem in found.state.problems if "nodes cannot be listed" in problem]
        # Unknown is not none: a target that nobody may read would be missed.
        assert found.state.workloads[0].utilization is None

    async def nothing(cluster: SimCluster, client: Client) -> None:
        with pytest.raises(KubetideError, match=r"no workloads may be read: .*forbidden"):
            await gather(client, cluster.clock, Selection(), Sources())

    objects = [make_deployment("web", cpu="2"), make_stateful_set("db")]
    on_cluster(objects, some, transport=lambda inner: Forbidding(inner, "nodes|statefulsets|horizontalpodautoscalers"))
    on_cluster(objects, nothing, transport=lambda inner: Forbidding(inner, "/apis/(apps|batch)/"))
