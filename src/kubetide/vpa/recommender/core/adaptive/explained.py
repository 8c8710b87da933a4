"""Why a learned size is what it is, as plain data: what each rule would have cost, and which were followed."""

from typing import Any

import numpy as np

from kubetide.vpa.recommender.core.adaptive.cpu import RULES
from kubetide.vpa.recommender.core.adaptive.live import Key, LiveFleet


def explained(fleet: LiveFleet, key: Key) -> dict[str, Any]:
    """Return what was learned of one container."""
    place, adaptive = fleet.places[key], fleet.adaptive
    own, windows = adaptive.cpu.columns, adaptive.windows.columns
    share = adaptive.cpu.shares(slice(place, place + 1))[:, 0]
    # What a rule would have saved per decision, in units of the container's mean usage; below 0 it cost more.
    weight = float(np.maximum(adaptive.cpu.fleet["decisions"][0, 0], 1.0))
    rules = [
        {
            "rule": name,
            "proposal": _millis(own["proposals"][number, place]),
            "weight": round(float(share[number]), 4),
            "saves": round(float(own["regret"][number, place]) / weight, 4),
        }
        for number, name in enumerate(RULES)
    ]
    sizes = adaptive.in_force()
    mean, peak = adaptive.windows.usual()
    memory: dict[str, Any] = {
        "numbers": 2 if fleet.way.limit_apart else 1,
        "request": int(sizes.memory[place]),
        "usualMean": int(mean[place]),
        "usualPeak": int(peak[place]),
        "windows": int(np.count_nonzero(np.isfinite(windows["peaks"][:, place]))),
        "distrust": round(float(adaptive.distrust.columns["distrust"][0, place]), 3),
        "oomFloor": int(adaptive.distrust.floor()[place]),
        **adaptive.memory_figures(place),
    }
    if sizes.memory_limit is not None:
        memory["limit"] = int(sizes.memory_limit[place])
    return {
        "cadence": "daily" if fleet.way.daily else "hourly",
        "hours": int(windows["hours"][0, place]),
        "fleet": len(fleet.keys),
        "cpu": {"request": _millis(own["request"][0, place]), "rules": rules},
        "memory": memory,
    }


def _millis(cores: float) -> int:
    return int(cores * 1000.0)
