"""pyarrow, imported when a recording is opened or written: everything else of kubetide works without it."""

import importlib
from typing import Any

from kubetide.errors import InvalidInput
from kubetide.recording.format import TABLES


def arrow() -> Any:
    """Return pyarrow, or say how to get it."""
    return _module("pyarrow")


def parquet() -> Any:
    """Return pyarrow's Parquet module."""
    return _module("pyarrow.parquet")


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidInput("recordings need pyarrow: pip install 'kubetide[replay]'") from error


def schema_of(table: str) -> Any:
    """Return the Arrow schema of a table."""
    pa = arrow()
    kinds = {"time": pa.timestamp("us", tz="UTC")}
    return pa.schema([(name, kinds.get(kind) or getattr(pa, kind)()) for name, kind in TABLES[table].items()])
