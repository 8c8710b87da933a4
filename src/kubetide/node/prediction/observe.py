"""What each predictor says, for people who want to know which one was the careful one."""

from kubetide.node.prediction.reclaimable import MinPredictor, NoPrediction, Predictor, Reclaimable
from kubetide.telemetry import Telemetry


class Gauges:
    """The gauges of the predictors of one node."""

    def __init__(self, telemetry: Telemetry, node_name: str) -> None:
        self._node_name = node_name
        self._gauge = telemetry.gauge(
            "koordlet_node_predicted_resource_reclaimable",
            "What each predictor says could be lent out.",
            ("node", "predictor", "resource", "unit"),
        )

    def show(self, predictor: Predictor) -> None:
        """Set the gauges; a predictor without an answer shows zero."""
        parts: dict[str, Predictor] = {"minPredictor": predictor}
        if isinstance(predictor, MinPredictor):
            parts |= {
                "podReclaimablePredictor": predictor.pods,
                "priorityReclaimablePredictor": predictor.priorities,
            }
        for name, part in parts.items():
            try:
                found = part.result()
            except NoPrediction:
                found = Reclaimable(0, 0)
            self._gauge.labels(self._node_name, name, "cpu", "core").set(found.cpu_millis / 1000)
            self._gauge.labels(self._node_name, name, "memory", "byte").set(found.memory_bytes)
