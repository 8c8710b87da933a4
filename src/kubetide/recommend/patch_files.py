"""Writes a layout of patches into a folder."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from kubetide.errors import InvalidInput
from kubetide.recommend.core.patches import Raw, layout
from kubetide.recommend.core.rows import Row


def write_layout(folder: Path, name: str, rows: Sequence[Row]) -> tuple[list[Path], list[str]]:
    """Write the files of a layout; return them, and which workloads have none.

    Names of objects are names of files: what would lead out of the folder is an error.
    """
    files, left_out = layout(name, rows)
    written = []
    for relative, documents in sorted(files.items()):
        path = folder / relative
        if not path.resolve().is_relative_to(folder.resolve()):
            raise InvalidInput("leads out of the folder", subject=relative, field="--out")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head(name, documents[0], path) + dump(documents), encoding="utf-8")
        written.append(path)
    return written, left_out


def dump(documents: Sequence[Raw]) -> str:
    """Return documents as YAML."""
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)


def head(name: str, document: Raw, path: Path) -> str:
    """Return the comment that says how a patch is applied."""
    if name != "kubectl":
        return ""
    meta = document["metadata"]
    target = f"{document['kind'].lower()}/{meta['name']}"
    return f"# kubectl patch -n {meta['namespace']} {target} --type=strategic --patch-file={path.name}\n"
