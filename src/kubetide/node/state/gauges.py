"""Gauges whose set of series is made anew each round, without touching those of other nodes in the same process."""

from prometheus_client import Gauge


class RoundGauge:
    """Remembers which series it set, and removes those that a round did not set again."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._shown: set[tuple[str, ...]] = set()
        self._round: set[tuple[str, ...]] = set()

    def begin(self) -> None:
        """Start a round."""
        self._round = set()

    def set(self, labels: tuple[str, ...], value: float) -> None:
        """Set one series."""
        self._gauge.labels(*labels).set(value)
        self._round.add(labels)

    def end(self) -> None:
        """Remove what this round did not set."""
        for labels in self._shown - self._round:
            self._gauge.remove(*labels)
        self._shown = self._round
