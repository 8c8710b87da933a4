"""How many pods: the horizontal autoscaler, and its decision as a function."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubetide.api.objects.core import Pod as Pod
    from kubetide.api.objects.hpa import HorizontalPodAutoscaler as HorizontalPodAutoscaler
    from kubetide.api.values.codec import convert as convert
    from kubetide.hpa.core.decide import decide as decide
    from kubetide.hpa.core.observation import Memory as Memory
    from kubetide.hpa.core.observation import Observation as Observation
    from kubetide.hpa.core.observation import Options as Options
    from kubetide.hpa.core.observation import ScaleDecision as ScaleDecision
    from kubetide.hpa.core.observation import ScaleView as ScaleView
    from kubetide.hpa.core.samples import PodReading as PodReading
    from kubetide.hpa.core.samples import Sample as Sample
    from kubetide.hpa.core.samples import ValueReading as ValueReading

_HOMES = {
    "HorizontalPodAutoscaler": "kubetide.api.objects.hpa",
    "Memory": "kubetide.hpa.core.observation",
    "Observation": "kubetide.hpa.core.observation",
    "Options": "kubetide.hpa.core.observation",
    "Pod": "kubetide.api.objects.core",
    "PodReading": "kubetide.hpa.core.samples",
    "Sample": "kubetide.hpa.core.samples",
    "ScaleDecision": "kubetide.hpa.core.observation",
    "ScaleView": "kubetide.hpa.core.observation",
    "ValueReading": "kubetide.hpa.core.samples",
    "convert": "kubetide.api.values.codec",
    "decide": "kubetide.hpa.core.decide",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
