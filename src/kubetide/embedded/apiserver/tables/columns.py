"""Tables: what `kubectl get` shows of each kind of object."""

from datetime import datetime
from typing import Any

from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.tables import object_printers, workload_printers
from kubetide.embedded.apiserver.tables.printers import Cell, Column, printer_for

workload_printers.register_all()
object_printers.register_all()


def table(
    resource: ApiResource,
    objects: list[Raw],
    *,
    now: datetime | None,
    include: str = "Metadata",
    bookmark: bool = False,
) -> Raw:
    """Return objects as rows. `include` says how much of each object goes along with its row."""
    columns, cells_of = printer_for(resource)
    rows = [
        {"cells": [] if bookmark else _cells(cells_of(obj, now)), "object": _included(obj, include)} for obj in objects
    ]
    first = objects[0]["metadata"] if len(objects) == 1 else {}
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": first.get("resourceVersion", "")},
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": rows,
    }


def _cells(cells: list[Cell]) -> list[Any]:
    return ["<none>" if cell is None else cell for cell in cells]


def _definition(column: Column) -> Raw:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" else "",
        "description": column.description or column.name,
        "priority": column.priority,
    }


def _included(obj: Raw, include: str) -> Raw | None:
    match include:
        case "None":
            return None
        case "Object":
            return obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj.get("metadata") or {}}
