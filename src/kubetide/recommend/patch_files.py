"""Writes a layout of patches into a folder: one file for each workload, below its cluster and namespace.

The first line of a file for kubectl is the command that applies it; kustomize finds all files in `kustomization.yaml`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from kubetide.errors import InvalidInput
from kubetide.recommend.core.patches import PatchFile, layout
from kubetide.recommend.core.rows import Row


def write_layout(
    folder: Path, name: str, rows: Sequence[Row], *, no_limits: bool = False
) -> tuple[list[Path], list[str]]:
    """Write the files of a layout; return them, and which workloads have none and why.

    Names of objects are names of files: what would lead out of the folder is an error.
    """
    files, left_out = layout(name, rows, no_limits=no_limits)
    written = []
    for relative, file in sorted(files.items()):
        path = folder / relative
        if not path.resolve().is_relative_to(folder.resolve()):
            raise InvalidInput("leads out of the folder", subject=relative, field="--out")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(file, path.name), encoding="utf-8")
        written.append(path)
    return written, left_out


def _text(file: PatchFile, name: str) -> str:
    head = f"# {file.command} --patch-file={name}\n" if file.command else ""
    return head + dump([file.document])


def dump(documents: Sequence[Any]) -> str:
    """Return documents as YAML."""
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)
