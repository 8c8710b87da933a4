"""YAML as people write it, with errors in one line: where the text is wrong, and what is wrong there."""

from typing import Any

import yaml

from kubetide.errors import DecodeError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(data: bytes | str, *, what: str) -> Any:
    """Return what one YAML document holds; a DecodeError names `what`, the line and the problem."""
    try:
        return yaml.load(data, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise DecodeError(f"is not YAML: {error.problem or error.context}", subject=what, field=where) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise DecodeError(f"is not YAML: {reason}", subject=what) from error
