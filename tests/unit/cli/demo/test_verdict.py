"""A workload's verdict: what serves users badly comes first, with its remedy."""

from dataclasses import replace
from typing import Any

import pytest

from kubetide.cli.demo.verdict import Facts, verdict_of
from kubetide.dashboard.model import Amounts

FINE = Facts(key="shop/web", ready=3, pods=3, rate=20, latency=0.01, cpu=Amounts(used=0.4, asked=0.6))
VPA: dict[str, Any] = {"metadata": {"name": "web"}, "spec": {"updatePolicy": {"updateMode": "Recreate"}}}
SIZED = Amounts(used=0.1, asked=3.0, recommended=0.3)


def hpa(kind: str = "", status: str = "True", reason: str = "", message: str = "") -> dict[str, Any]:
    condition = {"type": kind, "status": status, "reason": reason, "message": message}
    return {
        "metadata": {"name": "web"},
        "spec": {"minReplicas": 2, "maxReplicas": 5},
        "status": {"conditions": [condition] if kind else []},
    }


LIMITED = hpa("ScalingLimited", reason="TooManyReplicas")


@pytest.mark.parametrize(
    ("facts", "tone", "text", "remedy"),
    [
        pytest.param(FINE, "good", "as its manifest has it", "", id="fine"),
        pytest.param(replace(FINE, batch_cores=4.5), "good", "batch work on 4.50 overcommitted cores", "", id="batch"),
        pytest.param(replace(FINE, hpa=hpa()), "good", "near its target", "", id="scaled"),
        pytest.param(replace(FINE, hpa=hpa(), pods=2), "good", "smallest size", "", id="smallest"),
        pytest.param(replace(FINE, vpa=VPA), "plain", "no recommendation yet", "", id="vpa-learns"),
        pytest.param(
            replace(FINE, vpa=VPA, cpu=Amounts(used=0.2, asked=0.3, recommended=0.3)), "good", "0.30 cores", "",
            id="vpa",
        ),
        pytest.param(replace(FINE, cpu=SIZED), "warn", "WASTEFUL", "VPA", id="wasteful"),
        pytest.param(replace(FINE, cpu=SIZED, vpa=VPA), "plain", "going to 0.30 cores", "", id="waste-ends"),
        pytest.param(
            replace(FINE, cpu=SIZED, vpa={"spec": {"updatePolicy": {"updateMode": "Off"}}}),
            "warn", "only advises", "updateMode", id="advice-only",
        ),
        pytest.param(replace(FINE, hpa=LIMITED), "warn", "AT ITS LIMIT", "maxReplicas of hpa web above 5", id="limit"),
        pytest.param(replace(FINE, latency=9, hpa=LIMITED), "bad", "SLOW", "maxReplicas", id="slow-at-its-limit"),
        pytest.param(replace(FINE, latency=9), "bad", "SLOW: 9 s", "kubectl autoscale", id="slow"),
        pytest.param(replace(FINE, latency=9, hpa=hpa()), "warn", "adds pods", "headroom", id="slow-but-scaling"),
        pytest.param(
            replace(FINE, hpa=hpa("ScalingActive", "False", message="no metrics")),
            "warn", "NOT SCALING: no metrics", "kubetide explain hpa shop/web", id="not-scaling",
        ),
        pytest.param(replace(FINE, ready=0), "bad", "DOWN", "describe", id="down"),
        pytest.param(replace(FINE, ready=0, oom_kills=9), "bad", "9 OOM kills", "memory limit", id="down-by-oom"),
        pytest.param(replace(FINE, oom_kills=1), "warn", "OOM-killed once", "memory limit", id="oom"),
        pytest.param(replace(FINE, oom_kills=5), "bad", "OOM LOOP: OOM-killed 5 times", "VPA", id="oom-loop"),
        pytest.param(replace(FINE, oom_kills=5, vpa=VPA), "bad", "no recommendation", "wait", id="oom-vpa-learns"),
        pytest.param(
            replace(FINE, oom_kills=5, vpa=VPA, cpu=SIZED), "plain", "sized by its VPA", "", id="oom-vpa-knows"
        ),
        pytest.param(replace(FINE, waiting=2), "warn", "2 of 5 pods have no node", "add a node", id="no-room"),
        pytest.param(
            replace(FINE, waiting=2, why_waiting="Insufficient kubernetes.io/batch-cpu"),
            "warn", "batch-cpu", "overcommit", id="no-batch-resources",
        ),
    ],
)  # fmt: skip
def test_the_first_thing_that_is_wrong_is_named(facts: Facts, tone: str, text: str, remedy: str) -> None:
    verdict = verdict_of(facts)
    assert verdict.tone == tone
    assert text in verdict.text
    assert remedy in verdict.remedy
    assert bool(remedy) == bool(verdict.remedy)
