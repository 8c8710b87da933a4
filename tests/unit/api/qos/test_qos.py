"""QoS classes, priorities, reservations and requests of pods."""

from typing import Any

import pytest

from kubetide.api.objects.core import Node, Pod
from kubetide.api.qos import cpu_normalization, qos, reservation
from kubetide.api.values.codec import convert
from kubetide.errors import InvalidInput


def pod(labels: dict[str, str] | None = None, *, containers: list[Any] | None = None, **spec: Any) -> Pod:
    return convert({"metadata": {"labels": labels}, "spec": {"containers": containers or [], **spec}}, Pod)


def container(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": requests or {}, "limits": limits or {}}}


def test_a_label_in_lower_case_is_no_class() -> None:
    assert qos.raw_qos({qos.LABEL_QOS: "be"}) == ""


def test_an_unknown_priority_label_hides_the_number() -> None:
    assert qos.raw_priority(pod({qos.LABEL_PRIORITY_CLASS: "weird"}, priority=9500)) == ""
    assert qos.raw_priority(pod(priority=9500)) == "koord-prod"
    assert qos.raw_priority(pod(priority=6500)) == ""


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([container()], "BestEffort", id="nothing-asked"),
        pytest.param([container({"cpu": "1"})], "Burstable", id="request-only"),
        pytest.param(
            [container({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"})], "Guaranteed", id="equal"
        ),
        pytest.param([container({"kubernetes.io/batch-cpu": "1000"})], "BestEffort", id="batch-does-not-count"),
        pytest.param([container({"cpu": "0"}, {"memory": "0"})], "BestEffort", id="zero-does-not-count"),
    ],
)
def test_kubernetes_qos_follows_the_kubelet(containers: list[Any], expected: str) -> None:
    assert qos.kube_qos(pod(containers=containers)) == expected


def test_batch_cpu_is_a_number_of_millicores() -> None:
    batch = pod(containers=[container({qos.BATCH_CPU: "1k"}, {qos.BATCH_CPU: "2k"})])
    assert (qos.extended_request(batch, qos.BATCH_CPU), qos.extended_limit(batch, qos.BATCH_CPU)) == (1000, 2000)


def test_sidecars_count_in_batch_requests_and_other_init_containers_do_not() -> None:
    batch = container({qos.BATCH_CPU: "1k"})
    both = pod(containers=[batch], initContainers=[{**batch, "restartPolicy": "Always"}, batch])
    assert qos.extended_request(both, qos.BATCH_CPU) == 2000


def test_one_container_without_limit_makes_the_pod_unlimited() -> None:
    assert qos.pod_cpu_limit_millis(pod(containers=[container(limits={"cpu": "1"}), container()])) == -1


def test_a_list_of_cpus_wins_over_their_number() -> None:
    annotations = {qos.ANNOTATION_RESERVATION: '{"resources":{"cpu":"5"},"RESERVEDCPUS":"0-1"}'}
    assert reservation.reserved_cpus(annotations) == ("0-1", 0)
    assert str((reservation.annotation_reserved(annotations) or {})["cpu"]) == "2"


def test_a_broken_reservation_reserves_nothing() -> None:
    assert reservation.annotation_reserved({qos.ANNOTATION_RESERVATION: "{"}) is None


def test_the_node_reserves_the_larger_of_kubelet_and_annotation() -> None:
    node = convert(
        {
            "metadata": {"annotations": {qos.ANNOTATION_RESERVATION: '{"resources":{"cpu":"3"}}'}},
            "status": {"capacity": {"cpu": "8", "memory": "8Gi"}, "allocatable": {"cpu": "7", "memory": "7Gi"}},
        },
        Node,
    )
    reserved = reservation.node_reserved(node)
    assert (str(reserved["cpu"]), str(reserved["memory"])) == ("3", "1Gi")


def test_system_cpus_are_exclusive_unless_they_say_otherwise() -> None:
    assert reservation.SystemQos().exclusive
    assert not reservation.SystemQos(cpuset_exclusive=False).exclusive


@pytest.mark.parametrize("text", ["zero", "0", "-1", " 1.0"])
def test_a_ratio_must_be_a_positive_number(text: str) -> None:
    with pytest.raises(InvalidInput):
        cpu_normalization.node_ratio({qos.ANNOTATION_CPU_NORMALIZATION: text})


def test_dedicated_cpus_need_a_readable_list() -> None:
    assert str(qos.dedicated_cpus({qos.ANNOTATION_RESOURCE_STATUS: '{"cpuset":"2-3"}'})) == "2-3"
    assert qos.dedicated_cpus({qos.ANNOTATION_RESOURCE_STATUS: '{"cpuset":"x"}'}) is None
    assert qos.dedicated_cpus({qos.ANNOTATION_RESOURCE_STATUS: "bad"}) is None
