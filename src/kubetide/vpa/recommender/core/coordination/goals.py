"""Which VPAs are sized for an HPA's target, and why others are not.

One HPA with one CPU utilization can be sized for. Several HPAs on one workload, or several CPU targets in one, have no
common size: then CPU is left alone. An HPA on an absolute average value does not look at requests, so a VPA cannot
disturb it and goes on as ever. Memory stays vertical: where an HPA scales on it, the VPA leaves it alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubetide.api.objects.coordination import CONFLICTS_ANNOTATION
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.vpa.core.policy import CPU
from kubetide.vpa.recommender.settings import HpaConflicts

DEFAULT_PERCENT = 80
"""The target of an HPA that names no metric."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The HPA that a VPA is sized for."""

    hpa: HorizontalPodAutoscaler
    percent: int
    container: str = ""
    """The one container that the HPA looks at; empty: whole pods."""


@dataclass(frozen=True, slots=True)
class Coordination:
    """What is done about an HPA on the same workload."""

    mode: HpaConflicts | None = None
    """None: what the flag says."""
    goal: Goal | None = None
    obstacle: str = ""
    """Why there is nothing to size for, although it was asked for."""
    problem: str = ""
    """What is wrong with the annotation."""

    @property
    def words(self) -> tuple[str, ...]:
        """Return what its condition depends on."""
        return (str(self.mode), *(() if self.goal is None else (self.goal.hpa.metadata.name, str(self.goal.percent))))


NOT_ASKED = Coordination()


def conflict_mode(annotations: Mapping[str, str], default: HpaConflicts) -> tuple[HpaConflicts, str]:
    """Return what a VPA wants to be done about an HPA, and what is wrong with its annotation."""
    text = annotations.get(CONFLICTS_ANNOTATION)
    if text is None:
        return default, ""
    try:
        return HpaConflicts(text), ""
    except ValueError:
        return default, f"annotation {CONFLICTS_ANNOTATION}: {text!r} is none of {', '.join(HpaConflicts)}"


def coordination_of(
    annotations: Mapping[str, str], default: HpaConflicts, hpas: Sequence[HorizontalPodAutoscaler], *, scoped: bool
) -> Coordination:
    """Return what is done about the HPAs of a VPA's workload."""
    mode, problem = conflict_mode(annotations, default)
    if mode is not HpaConflicts.COORDINATE or not hpas:
        return Coordination(mode, problem=problem)
    goals = [goal for hpa in hpas for goal in cpu_goals(hpa)]
    if not goals:
        return Coordination(mode, problem=problem)
    obstacle = ""
    if scoped:
        obstacle = "its pods are sized by groups of nodes"
    elif len(hpas) > 1:
        obstacle = f"{len(hpas)} HorizontalPodAutoscalers scale the workload"
    elif len(goals) > 1:
        obstacle = f"HorizontalPodAutoscaler {hpas[0].metadata.name} has {len(goals)} CPU targets"
    return Coordination(mode, None if obstacle else goals[0], obstacle, problem)


def cpu_goals(hpa: HorizontalPodAutoscaler) -> list[Goal]:
    """Return the CPU utilizations that an HPA aims at."""
    if not hpa.spec.metrics:
        return [Goal(hpa, DEFAULT_PERCENT)]
    goals = []
    for metric in hpa.spec.metrics:
        if metric.resource is not None and metric.resource.name == CPU:
            percent, container = metric.resource.target.average_utilization, ""
        elif metric.container_resource is not None and metric.container_resource.name == CPU:
            source = metric.container_resource
            percent, container = source.target.average_utilization, source.container
        else:
            continue
        if percent is not None and percent > 0:
            goals.append(Goal(hpa, percent, container))
    return goals
