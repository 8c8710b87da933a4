"""The order in which workloads are disturbed."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.testing.builders import make_container, make_pod, make_vpa
from kubetide.vpa.updater.core.budget import Creator
from kubetide.vpa.updater.core.memory import Memory
from kubetide.vpa.updater.core.plan import Observation, PlanRules, VpaPlan, plan
from kubetide.vpa.updater.executor import LoopExecution

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
WORKLOADS = ("blue", "green", "red", "amber")


class Now:
    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0


class Looked:
    """A store in which every pod is gone already, and which knows in what order it was asked."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def get(self, key: ObjectKey) -> None:
        self.order.append(key.name)


def planned(workload: str, *, cpu: str) -> VpaPlan:
    raw = make_pod(workload, uid=workload, containers=[make_container(cpu=cpu, memory="256Mi")], phase="Running")
    raw["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": workload, "controller": True}]
    raw["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    recommendation = {"main": {"cpu": "300m", "memory": "256Mi"}}
    vpa = convert(make_vpa(workload, mode="Recreate", recommendation=recommendation), VerticalPodAutoscaler)
    pods = (convert(raw, Pod),)
    observation = Observation(vpa=vpa, pods=pods, stated={Creator("default", "ReplicaSet", workload): 1})
    return plan(observation, Memory(), PlanRules(min_replicas=1), now=NOW)


def order_of(plans: Sequence[VpaPlan]) -> list[str]:
    pods: Any = Looked()
    unused: Any = None
    made = LoopExecution(
        plans,
        effects=unused,
        limiters=unused,
        memory=Memory(),
        pods=pods,
        workload=lambda creator: [],
        clock=Now(),
        deadline=NOW + timedelta(minutes=1),
        workers=1,
    )
    asyncio.run(made.run())
    order: list[str] = pods.order
    return order


@pytest.mark.parametrize("turn", range(len(WORKLOADS)))
def test_equally_urgent_workloads_go_by_name_however_they_come(turn: int) -> None:
    names = [*WORKLOADS[turn:], *WORKLOADS[:turn]]
    assert order_of([planned(name, cpu="100m") for name in names]) == sorted(WORKLOADS)


def test_the_most_urgent_workload_goes_first_whatever_its_name() -> None:
    plans = [planned("amber", cpu="100m"), planned("blue", cpu="400m"), planned("green", cpu="50m")]
    assert order_of(plans) == ["green", "amber", "blue"]
