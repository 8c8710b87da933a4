"""Writes a layout of patches into a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from kubetide.errors import InvalidInput
from kubetide.recommend.core.patches import layout
from kubetide.recommend.core.rows import Row


def write_layout(folder: Path, name: str, rows: Sequence[Row]) -> tuple[list[Path], list[str]]:
    """Write the files of a layout; return them, and which workloads have none and why.

    Names of objects are names of files: what would lead out of the folder is an error.
    """
    files, left_out = layout(name, rows)
    written = []
    for relative, file in sorted(files.items()):
        path = folder / relative
        if not path.resolve().is_relative_to(folder.resolve()):
            raise InvalidInput("leads out of the folder", subject=relative, field="--out")
        path.parent.mkdir(parents=True, exist_ok=True)
        head = f"# {file.command} --patch-file={path.name}\n" if file.command else ""
        path.write_text(head + dump([file.document]), encoding="utf-8")
        written.append(path)
    return written, left_out


def dump(documents: Sequence[Any]) -> str:
    """Return documents as YAML."""
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)
