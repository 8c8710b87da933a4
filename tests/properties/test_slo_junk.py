"""Junk on a node, in its report, its topology or its devices never breaks the decision, and never empties the node."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from kubetide.api.objects.core import Node, Pod
from kubetide.api.objects.slo import Device, NodeMetric, NodeResourceTopology
from kubetide.api.qos.slo_merge import COLOCATION, overlay
from kubetide.api.values.codec import convert
from kubetide.errors import DecodeError
from kubetide.slo.core.decide import decide_node
from kubetide.slo.core.observation import NodeObservation
from kubetide.slo.core.overcommit.claims import claim_of
from kubetide.slo.explain import render
from kubetide.slo.settings import SloSettings

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BATCH = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}

amounts = st.sampled_from(["1", "500m", "-3", "1Gi", "", "much", "NaN", "1e400", "9" * 30, 5, 1.5, None])
resources = (
    st.dictionaries(st.sampled_from(["cpu", "memory", *BATCH, "koordinator.sh/gpu-core"]), amounts, max_size=3)
    | st.none()
)
json_texts = st.recursive(
    st.none() | st.booleans() | st.integers() | amounts | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "resources",
                    "reservedCPUs",
                    "allocations",
                    "priority",
                    "numaNodeResources",
                    "node",
                    "cpuModel",
                    "enable",
                    "degradeTimeMinutes",
                    "extensions",
                    "metricAggregatePolicy",
                    "durations",
                    "cpu",
                    "x",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
).map(lambda value: msgspec.json.encode(value).decode())
texts = json_texts | st.text(max_size=8) | st.sampled_from(["1.2", "inf", "-1", "0x1p3", "true", "0-3"])
annotations = st.dictionaries(
    st.sampled_from(
        [
            "node.koordinator.sh/colocation-strategy",
            "node.koordinator.sh/reservation",
            "node.koordinator.sh/originExtendedAllocatable",
            "node.koordinator.sh/thirdPartyAllocations",
            "node.koordinator.sh/cpu-normalization-ratio",
            "node.koordinator.sh/resource-amplification-ratio",
        ]
    ),
    texts,
    max_size=3,
)
labels = st.dictionaries(
    st.sampled_from(
        [
            "node.koordinator.sh/cpu-reclaim-ratio",
            "node.koordinator.sh/memory-reclaim-ratio",
            "node.koordinator.sh/cpu-normalization-enabled",
        ]
    ),
    texts,
    max_size=2,
)
usages = st.fixed_dictionaries({"resources": resources})
reports = st.fixed_dictionaries(
    {"updateTime": st.just(NOW.isoformat())},
    optional={
        "nodeMetric": st.fixed_dictionaries({}, optional={"systemUsage": usages, "nodeUsage": usages}),
        "podsMetric": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["web", "gone"]), "namespace": st.just("shop"), "podUsage": usages}
            ),
            max_size=2,
        ),
        "hostApplicationMetric": st.lists(st.fixed_dictionaries({"usage": usages}), max_size=1),
        "prodReclaimableMetric": st.fixed_dictionaries({"resource": usages}),
    },
)
zone_lists = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.sampled_from(["node-0", "node-1"]),
            "resources": st.lists(
                st.fixed_dictionaries(
                    {}, optional={"name": st.sampled_from(["cpu", "memory", *BATCH]), "allocatable": amounts}
                ),
                max_size=2,
            ),
        },
    ),
    max_size=2,
)
devices = st.fixed_dictionaries({"type": st.just("gpu"), "health": st.booleans(), "resources": resources})


def typed(raw: Any, kind: Any) -> Any:
    """Read an object as an informer does; what it cannot read it does not hand on."""
    try:
        return convert(raw, kind)
    except DecodeError:
        return None


ENDLESS_USAGE = {
    "updateTime": "2026-01-01T12:00:00+00:00",
    "podsMetric": [{"name": "gone", "namespace": "shop", "podUsage": {"resources": {"cpu": "1e400"}}}],
}


@given(annotations, labels, reports, zone_lists, st.lists(devices, max_size=2), texts, st.booleans())
@example({}, {}, ENDLESS_USAGE, [], [], "", True)
def test_junk_breaks_no_decision(
    annotated: dict[str, str],
    labelled: dict[str, str],
    report: dict[str, Any],
    zones: list[dict[str, Any]],
    gpus: list[dict[str, Any]],
    status: str,
    gradual: bool,
) -> None:
    own = {"cpu": "16", "memory": "64Gi", **BATCH}
    node = convert(
        {
            "metadata": {"name": "n", "annotations": annotated, "labels": labelled},
            "status": {"capacity": own, "allocatable": own},
        },
        Node,
    )
    pod = {
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "annotations": {"scheduling.koordinator.sh/resource-status": status},
        },
        "spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]},
        "status": {"phase": "Running"},
    }
    topology = typed({"zones": zones}, NodeResourceTopology)
    seen = NodeObservation(
        node=node,
        pods=[claim_of(convert(pod, Pod))],
        metric=typed({"status": report}, NodeMetric),
        topology=topology,
        zones=zones if topology is not None else (),
        topology_annotations={"node.koordinator.sh/cpu-basic-info": status},
        device=typed({"spec": {"devices": gpus}}, Device),
        colocation=overlay(COLOCATION, {"enable": True}),
        normalization={"enable": True, "ratioModel": {"x": {"baseRatio": 1.5}}},
        watched_for=timedelta(0),
    )
    decision = decide_node(seen, SloSettings(gradual_release=gradual, growth_limit_percent=10), NOW)
    render(decision.trace)
    msgspec.json.encode([decision.status_patch, decision.metadata_patch, decision.zones])
    failed = {problem.plugin for problem in decision.problems if problem.stage == "ResourceCalculate"}
    if "BatchResource" in failed:
        changed = (decision.status_patch or {}).get("status", {}).get("allocatable", {})
        assert not set(changed) & set(BATCH), "a plugin that failed leaves what is there"
