"""A workload's verdict: what serves users badly comes first, with its remedy."""

from dataclasses import replace
from typing import Any

import pytest

from kubetide.api.objects.meta import ObjectKey
from kubetide.cli.demo.verdict import Facts, verdict_of
from kubetide.dashboard.core.model import Amounts
from kubetide.verdicts.core.finding import found

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
        pytest.param(replace(FINE, latency=9, hpa=LIMITED), "bad", "SLOW", "maxReplicas", id="slow-at-its-limit"),
        pytest.param(replace(FINE, latency=9), "bad", "SLOW: 9 s", "kubectl autoscale", id="slow"),
        pytest.param(replace(FINE, latency=9, hpa=hpa()), "warn", "adds pods", "headroom", id="slow-but-scaling"),
        pytest.param(replace(FINE, ready=0), "bad", "DOWN", "describe", id="down"),
        pytest.param(replace(FINE, ready=0, oom_kills=9), "bad", "9 OOM kills", "memory limit", id="down-by-oom"),
        pytest.param(replace(FINE, oom_kills=1), "warn", "OOM-killed once", "memory limit", id="oom"),
        pytest.param(replace(FINE, oom_kills=5), "bad", "OOM LOOP: OOM-killed 5 times", "VPA", id="oom-loop"),
        pytest.param(replace(FINE, oom_kills=5, vpa=VPA), "bad", "no recommendation", "wait", id="oom-vpa-learns"),
        pytest.param(
            replace(FINE, oom_kills=5, vpa=VPA, cpu=SIZED), "plain", "sized by its VPA", "", id="oom-vpa-knows"
        ),
    ],
)  # fmt: skip
def test_the_first_thing_that_is_wrong_is_named(facts: Facts, tone: str, text: str, remedy: str) -> None:
    verdict = verdict_of(facts)
    assert verdict.tone == tone
    assert text in verdict.text
    assert remedy in verdict.remedy
    assert bool(remedy) == bool(verdict.remedy)


def test_what_verdicts_say_stands_after_what_users_feel_and_before_what_is_fine() -> None:
    key = ObjectKey("shop", "web")
    minor = found("pdb-blocks", "pdb", key, rule="minAvailable 3", count=3)
    assert verdict_of(FINE, [minor]).text == minor.line
    assert verdict_of(FINE, [minor]).remedy == minor.remedy
    assert verdict_of(FINE, [minor]).tone in ("warn", "bad")
    assert verdict_of(replace(FINE, latency=9), [minor]).text.startswith("SLOW")
    assert verdict_of(FINE, [found("pdb-ok", "pdb", key, allowed=1, count=3)]).tone == "good"
