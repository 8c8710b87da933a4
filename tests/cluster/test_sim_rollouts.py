"""Revisions, deadlines and adoption in the simulated cluster: what kubectl's rollout commands and orphans rely on."""

import json
from datetime import timedelta
from typing import Any

import pytest

from kubetide.embedded.apiserver.storage.objects import ResourceKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.embedded.sim.world import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    controller_of,
)
from kubetide.testing.builders import (
    make_daemon_set,
    make_deployment,
    make_job,
    make_pod,
    make_replica_set,
    make_stateful_set,
)
from simulated.cluster import events, get, pods, ready_pods, run

Raw = dict[str, Any]
MINUTE = timedelta(minutes=1)
APPS = "/apis/apps/v1/namespaces/default"


async def send(cluster: SimCluster, method: str, path: str, body: Any = None, kind: str = "application/json") -> Raw:
    answer = await cluster.transport().request(
        method, path, body=json.dumps(body).encode() if body is not None else None, content_type=kind
    )
    decoded: Raw = json.loads(answer.body)
    assert answer.status < 300, decoded
    return decoded


def history(cluster: SimCluster) -> dict[int, str]:
    """Return the image of each revision, by number."""
    found = {}
    for each in cluster.world.all(CONTROLLER_REVISIONS):
        template = each["data"]["spec"]["template"]
        assert template["$patch"] == "replace"
        found[each["revision"]] = template["spec"]["containers"][0]["image"]
    return dict(sorted(found.items()))


SETS = [
    pytest.param(STATEFUL_SETS, lambda **more: make_stateful_set("set", replicas=2, **more), id="stateful-set"),
    pytest.param(DAEMON_SETS, lambda **more: make_daemon_set("set", **more), id="daemon-set"),
]


@pytest.mark.parametrize(("resource", "make"), SETS)
def test_every_template_is_a_revision_and_one_can_go_back(resource: ResourceKey, make: Any) -> None:
    async def main(cluster: SimCluster) -> None:
        for number in (1, 2, 3):
            manifest = make(image=f"sim/app:{number}")
            manifest["metadata"]["annotations"] = {"kubernetes.io/change-cause": "because"}
            await cluster.apply(manifest)
            await cluster.run_for(3 * MINUTE)
        assert history(cluster) == {1: "sim/app:1", 2: "sim/app:2", 3: "sim/app:3"}
        [first] = [each for each in cluster.world.all(CONTROLLER_REVISIONS) if each["revision"] == 1]
        owner = controller_of(first)
        assert owner is not None
        assert owner["name"] == "set"
        assert first["metadata"]["annotations"]["kubernetes.io/change-cause"] == "because"
        path = f"{APPS}/{resource.plural}/set"
        await send(cluster, "PATCH", path, first["data"], "application/strategic-merge-patch+json")
        await cluster.run_for(3 * MINUTE)
        assert history(cluster) == {2: "sim/app:2", 3: "sim/app:3", 4: "sim/app:1"}
        assert {pod["spec"]["containers"][0]["image"] for pod in ready_pods(cluster)} == {"sim/app:1"}
        names = {each["metadata"]["name"] for each in cluster.world.all(CONTROLLER_REVISIONS)}
        labels = {pod["metadata"]["labels"]["controller-revision-hash"] for pod in pods(cluster)}
        assert any(name.endswith(label) for name in names for label in labels)

    run(main, nodes=2)


@pytest.mark.parametrize(("resource", "make"), SETS)
def test_old_revisions_are_forgotten_beyond_the_limit(resource: ResourceKey, make: Any) -> None:
    async def main(cluster: SimCluster) -> None:
        for number in range(1, 6):
            manifest = make(image=f"sim/app:{number}")
            manifest["spec"]["revisionHistoryLimit"] = 2
            await cluster.apply(manifest)
            await cluster.run_for(3 * MINUTE)
        assert list(history(cluster)) == [3, 4, 5]

    run(main, nodes=2)


def progressing(cluster: SimCluster) -> tuple[str, str]:
    for condition in get(cluster, DEPLOYMENTS, "default", "web")["status"]["conditions"]:
        if condition["type"] == "Progressing":
            return condition["status"], condition["reason"]
    return "", ""


def test_a_rollout_that_gets_nowhere_misses_its_deadline_and_recovers() -> None:
    async def main(cluster: SimCluster) -> None:
        manifest = make_deployment("web", replicas=2, cpu="100m")
        manifest["spec"]["progressDeadlineSeconds"] = 120
        await cluster.apply(manifest)
        await cluster.run_for(MINUTE)
        assert progressing(cluster) == ("True", "NewReplicaSetAvailable")
        too_big = make_deployment("web", replicas=2, cpu="100")
        too_big["spec"]["progressDeadlineSeconds"] = 120
        await cluster.apply(too_big)
        await cluster.run_for(timedelta(seconds=100))
        assert progressing(cluster) == ("True", "ReplicaSetUpdated")
        await cluster.run_for(timedelta(seconds=30))
        assert progressing(cluster) == ("False", "ProgressDeadlineExceeded")
        await cluster.run_for(10 * MINUTE)
        assert progressing(cluster) == ("False", "ProgressDeadlineExceeded")
        await cluster.apply(manifest)
        await cluster.run_for(MINUTE)
        assert progressing(cluster) == ("True", "NewReplicaSetAvailable")

    run(main, nodes=1)


def test_a_pod_that_dies_after_the_rollout_is_no_rollout() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2))
        await cluster.run_for(MINUTE)
        await send(cluster, "DELETE", f"/api/v1/namespaces/default/pods/{pods(cluster)[0]['metadata']['name']}")
        await cluster.run_for(timedelta(seconds=1))
        assert progressing(cluster) == ("True", "NewReplicaSetAvailable")

    run(main, nodes=1)


def orphan(cluster: SimCluster) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods(cluster) if controller_of(pod) is None]


def test_a_set_takes_over_pods_that_it_selects_and_nobody_controls() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_pod("stray", labels={"app": "web"}))
        await cluster.run_for(MINUTE)
        await cluster.apply(make_replica_set("web", replicas=2))
        await cluster.run_for(MINUTE)
        assert orphan(cluster) == []
        assert len(pods(cluster)) == 2
        await cluster.apply(make_pod("late", labels={"app": "web"}))
        await cluster.run_for(2 * MINUTE)
        # One too many was adopted, and the surplus goes.
        assert orphan(cluster) == []
        assert len(pods(cluster)) == 2

    run(main, nodes=1)


def test_a_pod_whose_labels_change_is_let_go_and_replaced() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_replica_set("web", replicas=2))
        await cluster.run_for(MINUTE)
        name = pods(cluster)[0]["metadata"]["name"]
        change = {"metadata": {"labels": {"app": "debug"}}}
        await send(cluster, "PATCH", f"/api/v1/namespaces/default/pods/{name}", change, "application/merge-patch+json")
        await cluster.run_for(MINUTE)
        assert orphan(cluster) == [name]
        assert len(ready_pods(cluster, app="web")) == 2
        assert get(cluster, REPLICA_SETS, "default", "web")["status"]["readyReplicas"] == 2

    run(main, nodes=1)


def test_a_pod_that_one_set_lets_go_is_taken_over_by_the_set_that_selects_it_now() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply([make_replica_set("web", replicas=1), make_replica_set("api", replicas=0)])
        await cluster.run_for(MINUTE)
        (name,) = (pod["metadata"]["name"] for pod in pods(cluster))
        await cluster.apply(make_replica_set("api", replicas=1))
        change = {"metadata": {"labels": {"app": "api"}}}
        await send(cluster, "PATCH", f"/api/v1/namespaces/default/pods/{name}", change, "application/merge-patch+json")
        await cluster.run_for(2 * MINUTE)
        assert orphan(cluster) == []
        assert len(ready_pods(cluster, app="api")) == len(ready_pods(cluster, app="web")) == 1

    run(main, nodes=1)


@pytest.mark.parametrize(
    ("plural", "manifest"),
    [
        pytest.param("deployments", make_deployment("web", replicas=2), id="deployment"),
        pytest.param("replicasets", make_replica_set("web", replicas=2), id="replica-set"),
        pytest.param("statefulsets", make_stateful_set("web", replicas=2), id="stateful-set"),
        pytest.param("daemonsets", make_daemon_set("web"), id="daemon-set"),
    ],
)
def test_a_set_that_comes_back_finds_what_it_left_behind(plural: str, manifest: Raw) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(manifest)
        await cluster.run_for(MINUTE)
        before = {pod["metadata"]["uid"] for pod in ready_pods(cluster)}
        assert len(before) == 2
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"}
        await send(cluster, "DELETE", f"{APPS}/{plural}/web", options)
        await cluster.run_for(MINUTE)
        assert {pod["metadata"]["uid"] for pod in pods(cluster)} == before
        await cluster.apply(manifest)
        await cluster.run_for(2 * MINUTE)
        assert {pod["metadata"]["uid"] for pod in ready_pods(cluster)} == before
        assert orphan(cluster) == []
        if plural == "deployments":
            assert len(cluster.world.all(REPLICA_SETS)) == 1

    run(main, nodes=2)


def test_a_job_takes_over_what_its_own_selector_matches() -> None:
    async def main(cluster: SimCluster) -> None:
        stray = make_pod("stray", labels={"task": "sum"})
        await cluster.apply(stray)
        await cluster.run_for(MINUTE)
        job = make_job("sum")
        job["spec"]["manualSelector"] = True
        job["spec"]["selector"] = {"matchLabels": {"task": "sum"}}
        job["spec"]["template"].setdefault("metadata", {})["labels"] = {"task": "sum"}
        await cluster.apply(job)
        await cluster.run_for(timedelta(seconds=5))
        assert orphan(cluster) == []
        assert len(pods(cluster)) == 1

    run(main, nodes=1)


@pytest.mark.parametrize(
    ("ttl", "left"),
    [
        pytest.param(timedelta(hours=1), False, id="an-hour"),
        pytest.param(timedelta(0), True, id="for-ever"),
        pytest.param(timedelta(hours=5), True, id="longer"),
    ],
)
def test_events_go_when_their_time_is_over(ttl: timedelta, left: bool) -> None:
    async def main() -> None:
        async with SimCluster(event_ttl=ttl) as cluster:
            cluster.add_node("node-1")
            await cluster.apply(make_deployment("web", replicas=1))
            await cluster.run_for(timedelta(minutes=50))
            assert events(cluster, reason="ScalingReplicaSet")
            await cluster.run_for(timedelta(minutes=15))
            assert bool(events(cluster, reason="ScalingReplicaSet")) is left

    run_virtual(main())


def test_an_event_that_happens_again_lives_on() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_pod("one"))
        pod = get(cluster, PODS, "default", "one")
        for _ in range(4):
            cluster.world.record(pod, "Again", "it happened again", component="test")
            await cluster.run_for(timedelta(minutes=40))
        [again] = events(cluster, reason="Again")
        assert again["count"] == 4
        await cluster.run_for(timedelta(minutes=30))
        assert events(cluster, reason="Again") == []
        assert cluster.world.all(EVENTS) == []

    run(main, nodes=1)
