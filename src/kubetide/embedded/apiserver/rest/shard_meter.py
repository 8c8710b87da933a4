"""What sharded watches save: how many there are, and how many events they were spared, by resource."""

from collections import Counter

WATCHES = "apiserver_watch_shards_total"
FILTERED = "apiserver_watch_filtered_events_total"

_Resource = tuple[str, str]
"""Group and plural name."""


class ShardMeter:
    """Counts the open watches that ask for a shard, and the events that were left out for them."""

    def __init__(self) -> None:
        self._open: Counter[_Resource] = Counter()
        self._filtered: Counter[_Resource] = Counter()

    def opened(self, group: str, plural: str) -> None:
        """Count a watch that asks for a shard."""
        self._open[group, plural] += 1

    def closed(self, group: str, plural: str) -> None:
        """Count it no more."""
        self._open[group, plural] -= 1

    def filtered(self, group: str, plural: str) -> None:
        """Count an event of another shard."""
        self._filtered[group, plural] += 1

    def text(self) -> str:
        """Return the counts as Prometheus reads them."""
        lines = [f"# HELP {WATCHES} Open watches that ask for a shard.", f"# TYPE {WATCHES} gauge"]
        lines += _samples(WATCHES, self._open)
        lines += [f"# HELP {FILTERED} Events left out of sharded watches.", f"# TYPE {FILTERED} counter"]
        lines += _samples(FILTERED, self._filtered)
        return "\n".join(lines) + "\n"


def _samples(name: str, counts: Counter[_Resource]) -> list[str]:
    found = sorted(counts.items())
    return [f'{name}{{group="{group}",resource="{plural}"}} {count}' for (group, plural), count in found]
