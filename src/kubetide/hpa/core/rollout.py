"""Pods that a rolling update adds for a while, and how they are kept from moving the target. Off unless asked for.

While a rollout runs there are more pods than the target wants: surge pods, pods that terminate, pods that warm up and
burn CPU for no load. The formula takes them all as if they were there to stay. With this rule it is asked twice, once
with all pods and once without those, and the answer that changes less counts:

    grows    ->  max(current, min(with all, without them))
    shrinks  ->  min(current, max(with all, without them))

So the rule can only hold back; it never moves a target that the plain formula would leave alone.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import controller_of
from kubetide.hpa.core.pods import ready_condition
from kubetide.hpa.core.replicas import Proposal
from kubetide.hpa.core.samples import ZERO_TIME

WARM_UP = timedelta(seconds=60)
"""How long a pod of a rollout counts as warming after it became Ready: the length of a usual sample window."""


def rollout_pods(pods: Sequence[Pod], replicas: int, *, now: datetime) -> frozenset[str]:
    """Return the names of pods that are only there because of a rollout; none if there is no rollout."""
    living = [pod for pod in pods if pod.metadata.deletion_timestamp is None and pod.status.phase != "Failed"]
    owners = {owner.uid for pod in living if (owner := controller_of(pod.metadata)) is not None}
    if len(owners) < 2 and len(living) <= replicas:
        return frozenset()
    passed = {pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp is not None}
    passed.update(pod.metadata.name for pod in living if _is_warming(pod, now))
    steady = [pod for pod in living if pod.metadata.name not in passed]
    if len(steady) > replicas:
        # The youngest are the surge: the others were there before the rollout.
        steady.sort(key=lambda pod: (pod.status.start_time or now, pod.metadata.name))
        passed.update(pod.metadata.name for pod in steady[max(replicas, 1) :])
    if len(passed) == len(pods):
        return frozenset()
    return frozenset(passed)


def held_back(plain: Proposal, aware: Proposal | None, current: int) -> Proposal:
    """Return the proposal that changes less; without a second answer, none that changes anything."""
    other = current if aware is None else aware.replicas
    if plain.replicas > current:
        count = max(current, min(plain.replicas, other))
    else:
        count = min(current, max(plain.replicas, other))
    if count == plain.replicas:
        return plain
    return replace(plain, replicas=count, rule=f"{plain.rule}; held back during a rollout (otherwise {plain.replicas})")


def _is_warming(pod: Pod, now: datetime) -> bool:
    condition = ready_condition(pod)
    if condition is None or not condition.is_true:
        return True
    return now - (condition.last_transition_time or ZERO_TIME) < WARM_UP
