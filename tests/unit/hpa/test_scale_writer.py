"""Writing a scale while others write the object too."""

import random

import pytest
from msgspec.structs import replace

from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.hpa.scale_writer import ATTEMPTS, ScaleOutdated, ScaleTaken, ScaleWriter
from kubetide.kube.client.discovery import DiscoveredResource
from kubetide.kube.client.errors import ApiError, Conflict, Forbidden, NotFound
from kubetide.kube.scale import ScaleTarget

CONFLICT = Conflict(409, "Conflict", "the object has been modified")
TARGET = ScaleTarget(
    resource=DiscoveredResource(group="apps", version="v1", plural="deployments", kind="Deployment", namespaced=True),
    namespace="shop",
    name="web",
    spec_replicas=3,
    status_replicas=3,
    selector="app=web",
    raw={},
)


class Scales:
    """An API server whose answers are laid out in advance."""

    def __init__(self, *answers: ApiError | None, again: int | ApiError = 3) -> None:
        self._answers = list(answers)
        self._again = again
        self.written: list[int] = []

    async def set(self, target: ScaleTarget, replicas: int, *, field_manager: str | None = None) -> ScaleTarget:
        self.written.append(replicas)
        answer = self._answers.pop(0)
        if answer is not None:
            raise answer
        return target

    async def refresh(self, target: ScaleTarget) -> ScaleTarget:
        if isinstance(self._again, ApiError):
            raise self._again
        return replace(target, spec_replicas=self._again)


def write(scales: Scales) -> None:
    run_virtual(ScaleWriter(scales, random.Random(1), field_manager="kubetide-hpa").write(TARGET, 5))


@pytest.mark.parametrize(
    "scales",
    [
        pytest.param(Scales(CONFLICT, CONFLICT, None), id="same-count"),
        pytest.param(Scales(CONFLICT, None, again=5), id="our-count-already"),
        pytest.param(Scales(CONFLICT, None, again=ApiError(500)), id="second-read-failed"),
    ],
)
def test_a_conflict_is_tried_again_with_the_count_that_was_decided(scales: Scales) -> None:
    write(scales)
    assert set(scales.written) == {5}


def test_five_conflicts_are_enough() -> None:
    scales = Scales(*[CONFLICT] * 9)
    with pytest.raises(Conflict):
        write(scales)
    assert len(scales.written) == ATTEMPTS


def test_any_other_error_ends_the_attempts() -> None:
    scales = Scales(CONFLICT, Forbidden(403, "Forbidden"))
    with pytest.raises(Forbidden):
        write(scales)
    assert len(scales.written) == 2


def test_a_count_that_somebody_else_set_meanwhile_is_not_overwritten() -> None:
    scales = Scales(CONFLICT, None, again=8)
    with pytest.raises(ScaleTaken, match="somebody else set 8 replicas while 5 were being written"):
        write(scales)
    assert scales.written == [5]


@pytest.mark.parametrize("answer", [CONFLICT, NotFound(404, "NotFound", "gone")], ids=["changed", "gone"])
def test_a_scale_that_was_followed_is_written_once_or_decided_anew(answer: ApiError) -> None:
    scales = Scales(answer, None)
    with pytest.raises(ScaleOutdated):
        run_virtual(ScaleWriter(scales, random.Random(1), field_manager="kubetide-hpa").write(TARGET, 5, followed=True))
    assert scales.written == [5]


def test_what_else_a_write_of_a_followed_scale_fails_with_is_told() -> None:
    scales = Scales(Forbidden(403, "Forbidden", "not yours"))
    with pytest.raises(Forbidden):
        run_virtual(ScaleWriter(scales, random.Random(1), field_manager="kubetide-hpa").write(TARGET, 5, followed=True))
