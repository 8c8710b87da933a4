"""oom_score_adj of containers, and how it reaches their processes."""

from typing import Any

import pytest

from kubetide.api.qos import qos
from kubetide.errors import InvalidInput
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.hooks.oom_score import wanted_score
from kubetide.node.core.hooks.rules import DEFAULT_GATES, OOM_SCORE, Plugins
from nodeworld import World


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, None, id="nothing"),
        pytest.param({qos.ANNOTATION_OOM_SCORE_ADJ: "-500"}, -500, id="for-the-pod"),
        pytest.param(
            {qos.ANNOTATION_OOM_SCORE_ADJ: "1", qos.ANNOTATION_OOM_SCORE_ADJ_SPEC: '{"main":7}'}, 7, id="by-container"
        ),
        pytest.param(
            {qos.ANNOTATION_OOM_SCORE_ADJ: "1", qos.ANNOTATION_OOM_SCORE_ADJ_SPEC: '{"other":7}'}, 1, id="of-another"
        ),
    ],
)
def test_the_value_of_a_container(annotations: dict[str, str], expected: int | None) -> None:
    assert wanted_score(annotations, "main") == expected


@pytest.mark.parametrize("text", ["x", "1001", "-1001", "1.5"])
def test_what_the_kernel_would_not_take_is_an_error(text: str) -> None:
    with pytest.raises(InvalidInput):
        wanted_score({qos.ANNOTATION_OOM_SCORE_ADJ: text}, "main")


def pod(name: str, score: str) -> dict[str, Any]:
    status = {"name": "main", "containerID": f"containerd://{name}", "state": {"running": {}}}
    return {
        "metadata": {"name": name, "namespace": "d", "uid": name, "annotations": {qos.ANNOTATION_OOM_SCORE_ADJ: score}},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [status]},
    }


def test_every_process_of_a_container_gets_it_and_a_broken_annotation_stops_nobody_else() -> None:
    world = World(version=2)
    good, _ = world.add_pod(pod("good", "300")), world.add_pod(pod("bad", "many"))
    world.cgroup("cpu", good.containers[0].directory, {"cgroup.procs": "11\n12\n13\n"})
    for pid in (11, 12):  # 13 ended in this moment
        world.host.files[f"/proc/{pid}/oom_score_adj"] = "0"
    hooks = HookDecider(Plugins(gates=dict.fromkeys(DEFAULT_GATES, False) | {OOM_SCORE: True}))
    plan = world.pass_of(hooks)
    assert [world.host.files[f"/proc/{pid}/oom_score_adj"] for pid in (11, 12)] == ["300", "300"]
    assert "not an integer" in plan.trace["problems"]["d/bad"]
    world.host.writes.clear()
    world.pass_of(hooks)
    assert not world.host.writes  # they have it already
