"""Answers of the metrics APIs as servers write them: usage as quantities, tables for people, values in older versions.

Shared by the metrics server and by the API server of the simulated cluster, which must not be told apart.
"""

from typing import Any

from kubetide.api.values.quantity import cpu_millis, memory_bytes

Raw = dict[str, Any]


def usage_text(cpu_cores: float, memory: float) -> dict[str, str]:
    """Return usage as metrics-server writes it: nanocores and kibibytes."""
    return {"cpu": f"{round(cpu_cores * 1e9)}n", "memory": f"{round(memory / 1024)}Ki"}


def number_text(value: float) -> str:
    """Return a metric value as a quantity, exact to a thousandth."""
    millis = round(value * 1000)
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def usage_table(items: list[Raw]) -> Raw:
    """Return PodMetrics or NodeMetrics as a Table."""
    names = ("Name", "cpu", "memory", "Window")
    columns = [{"name": name, "type": "string", "format": "", "description": name, "priority": 0} for name in names]
    rows = [{"cells": _cells(item), "object": _metadata(item)} for item in items]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": columns,
        "rows": rows,
    }


def _cells(item: Raw) -> list[str]:
    usages = [c.get("usage") or {} for c in item.get("containers") or ()] or [item.get("usage") or {}]
    cpu = sum(cpu_millis(usage.get("cpu", 0)) for usage in usages)
    memory = sum(memory_bytes(usage.get("memory", 0)) for usage in usages)
    return [item["metadata"]["name"], f"{cpu}m", f"{memory // 2**20}Mi", str(item.get("window", ""))]


def _metadata(item: Raw) -> Raw:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


def value_in_v1beta1(item: Raw) -> Raw:
    """Return a value of a custom metric, written in v1beta2, in the shape of v1beta1."""
    metric = item.get("metric") or {}
    shown = {key: value for key, value in item.items() if key not in ("metric", "windowSeconds")}
    shown["metricName"], shown["selector"] = metric.get("name", ""), metric.get("selector")
    if item.get("windowSeconds") is not None:
        shown["window"] = item["windowSeconds"]
    return shown
