"""A metrics provider that knows the usage of pods and nothing else, for tests and benchmarks."""

from typing import Any

from kubetide.api.values.codec import encode

Raw = dict[str, Any]


class PodUsageOnly:
    """Serves what `pod_metrics` of a subclass returns; the other metrics APIs are there and empty."""

    def pod_metrics(self, namespace: str = "", selector: str = "", name: str = "") -> list[Raw]:
        """Return PodMetrics objects; a subclass says which."""
        return []

    def pod_items(self, namespace: str = "") -> bytes:
        """Return the PodMetrics of a namespace, or of all, as a JSON list."""
        return encode(self.pod_metrics(namespace))

    def pod_columns(self, namespace: str = "") -> None:
        """Return nothing: what there is are objects."""

    def node_metrics(self, selector: str = "", name: str = "") -> list[Raw]:
        """Return nothing: no node is measured."""
        return []

    def custom(self, namespace: str, resource: str, name: str, metric: str, selector: str = "") -> list[Raw]:
        """Return nothing: there are no custom metrics."""
        return []

    def external(self, namespace: str, metric: str, selector: str = "") -> list[Raw]:
        """Return nothing: there are no external metrics."""
        return []

    def custom_names(self) -> list[tuple[str, str]]:
        """Return the custom metrics there are: none."""
        return []

    def external_names(self) -> list[str]:
        """Return the external metrics there are: none."""
        return []
