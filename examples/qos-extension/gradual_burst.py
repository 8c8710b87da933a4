"""Tries CPU burst on some of the pods before it becomes the rule for all.

The NodeSLO leaves burst switched off. A pod in whose namespace the roll-out has begun gets it when its uid falls into
the first PERCENT of a hundred; the choice stays the same over restarts and on every node.

    pip install ./examples/qos-extension
    kubetide node --qos-extension-plugins=gradual-burst=true
"""

import os
from zlib import crc32

from kubetide.api.qos.slo_strategies import CPUBurstConfig
from kubetide.node.core.qos.extensions import Extension
from kubetide.node.core.snapshot import PodState


class GradualBurst(Extension):
    """Gives a share of the pods the policy `auto`."""

    def __init__(self) -> None:
        self.percent = int(os.environ.get("GRADUAL_BURST_PERCENT", "10"))
        self.namespaces = set(os.environ.get("GRADUAL_BURST_NAMESPACES", "default").split(","))

    def cpu_burst(self, pod: PodState) -> CPUBurstConfig | None:
        if pod.namespace not in self.namespaces or crc32(pod.uid.encode()) % 100 >= self.percent:
            return None
        return CPUBurstConfig(policy="auto")
