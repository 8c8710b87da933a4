"""Where sizes are written: the template of an object, that of another one, or nowhere that is known."""

from typing import Any

import msgspec
import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.scheme import Resource
from kubetide.recommend import Sizes
from kubetide.recommend.core.templates import Custom, Found, Templated, made_by, read, referrers, workload_of

ROLLOUTS = Resource("argoproj.io", "v1alpha1", "rollouts", "Rollout", Custom)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", Templated)
MAIN = {"name": "main", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi", "nvidia.com/gpu": "1"}}}
POD = {
    "initContainers": [{"name": "migrate"}, {"name": "mesh", "restartPolicy": "Always", "resources": {}}],
    "containers": [MAIN, {"name": "proxy"}],
}


def found(resource: Resource[Any], name: str, spec: Any) -> Found:
    body = {"metadata": {"namespace": "shop", "name": name}, "spec": spec}
    return read(resource, msgspec.convert(body, resource.type))


def running(name: str, spec: dict[str, Any], created: str = "2026-01-01T00:00:00Z") -> Pod:
    meta = {"namespace": "shop", "name": name, "creationTimestamp": created}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, Pod)


def test_a_patch_of_a_custom_resource_knows_the_place_of_every_container_that_keeps_running() -> None:
    workload = workload_of(found(ROLLOUTS, "web", {"replicas": 3, "template": {"spec": POD}}), [])
    assert workload is not None
    assert (workload.replicas, workload.no_template) == (3, "")
    places = {one.name: one.place for one in workload.containers}
    assert {name: place.path.rpartition("/spec/")[2] for name, place in places.items() if place is not None} == {
        "main": "containers/0",
        "proxy": "containers/1",
        "mesh": "initContainers/1",
    }
    assert {name: place.holds for name, place in places.items() if place is not None} == {
        "main": ("resources", "requests", "limits"),
        "proxy": (),
        "mesh": ("resources",),
    }
    assert {one.name: one.after for one in workload.containers} == {
        "main": (),
        "proxy": ("main",),
        "mesh": ("migrate",),
    }
    assert [place.others for place in places.values() if place is not None] == [
        {"limits": {"nvidia.com/gpu": "1"}},
        {},
        {},
    ]
    built_in = workload_of(found(DEPLOYMENTS, "web", {"template": {"spec": POD}}), [])
    assert built_in is not None
    assert {one.place for one in built_in.containers} == {None}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(None, id="no-spec"),
        pytest.param("text", id="a-text"),
        pytest.param({"replicas": "many", "template": ["a", "list"], "workloadRef": 7}, id="other-shapes"),
        pytest.param({"template": {"spec": {"providerID": "x"}}}, id="a-template-of-machines"),
    ],
)
def test_a_template_of_another_shape_is_none_and_pods_stand_in(spec: Any) -> None:
    each = found(ROLLOUTS, "odd", spec)
    alone = workload_of(each, [])
    assert alone is not None
    assert [one.name for one in alone.containers] == [""]
    assert alone.no_template == "no pod template at spec.template"
    old = running("odd-a", {"containers": [{"name": "old"}]})
    new = running("odd-b", {"containers": [MAIN]}, "2026-01-02T00:00:00Z")
    sized = workload_of(each, [new, old])
    assert sized is not None
    assert [(one.name, one.place) for one in sized.containers] == [("main", None)]


def test_what_an_operator_made_names_its_resource() -> None:
    owner = {"apiVersion": "example.com/v1", "kind": "Database", "name": "main", "uid": "1", "controller": True}
    meta = {"namespace": "shop", "name": "db", "ownerReferences": [owner]}
    made = read(DEPLOYMENTS, msgspec.convert({"metadata": meta, "spec": {"template": {"spec": POD}}}, Templated))
    assert made.manager == ("shop", "Database", "main")
    workload, alone = workload_of(made, []), workload_of(found(DEPLOYMENTS, "db", {"template": {"spec": POD}}), [])
    assert workload is not None
    assert alone is not None
    assert (workload.managed_by, alone.managed_by) == ("Database main", "")


def test_a_limit_alone_is_what_pods_request() -> None:
    held = {"requests": {"memory": "256Mi"}, "limits": {"cpu": "500m", "memory": "1Gi"}}
    pod = {"containers": [{"name": "main", "resources": held}, {"name": "bare"}]}
    workload = workload_of(found(DEPLOYMENTS, "web", {"template": {"spec": pod}}), [])
    assert workload is not None
    assert [one.requests for one in workload.containers] == [Sizes(500, 2**28), Sizes()]


def test_one_object_takes_the_template_of_another() -> None:
    reference = {"workloadRef": {"kind": "Deployment", "name": "web"}}
    deployment = found(DEPLOYMENTS, "web", {"replicas": 0, "template": {"spec": POD}})
    first, second = (found(ROLLOUTS, name, {"replicas": 4, **reference}) for name in ("a", "b"))
    own = found(ROLLOUTS, "own", {"template": {"spec": POD}, **reference})
    lost = found(ROLLOUTS, "lost", {"workloadRef": {"kind": "Deployment", "name": "gone"}})
    assert referrers([second, own, lost, deployment, first]) == {deployment.key: first}
    workload = workload_of(deployment, [])
    assert workload is not None
    both = made_by(workload, first)
    assert both.replicas == 4
    assert both.maker is not None
    assert (both.maker.kind, both.maker.name, both.kind) == ("Rollout", "a", "Deployment")
