"""Requests in existing manifests, found or changed in place: only the amounts change, every other byte stays.

ruamel.yaml says where a value stands; the text is edited there. Templates ({{ … }}) are not YAML and are left alone, as
are amounts in flow style that would have to be added.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from kubetide.errors import InvalidInput
from kubetide.recommend.core.patches import by_workload, resources
from kubetide.recommend.core.rows import Row
from kubetide.recommend.core.workloads import ContainerKey

_SCALAR = re.compile(r""""[^"]*"|'[^']*'|[^\s,}#]+""")
_EMPTY = re.compile(r":(?:[ \t]*\{[ \t]*\}|[ \t]*(?:null|~))?(?=[ \t]*(?:#.*)?\r?$)")
"""What stands behind the key of a mapping that is empty, as `kubectl create --dry-run` writes it."""
_Workloads = Mapping[tuple[str, str, str], Sequence[Row]]


def edit_repository(root: Path, rows: Iterable[Row]) -> tuple[str, list[str]]:
    """Change the manifests below a folder; return the difference, and what could not be changed."""
    rows = list(rows)
    # A manifest may differ from the cluster, so all are compared; that one is missing matters where sizes change.
    wanted, changed = (
        {(kind, namespace, name): mine for (_, namespace, kind, name), mine in by_workload(rows, whole=whole).items()}
        for whole in (True, False)
    )
    found: set[tuple[str, str, str]] = set()
    problems: list[str] = []
    shown: list[str] = []
    for path, before in _manifests(root, problems):
        name = str(path.relative_to(root))
        after = edited(before, wanted, found, problems, name)
        if after != before:
            path.write_bytes(after.encode())
            lines = (before.splitlines(keepends=True), after.splitlines(keepends=True))
            shown += difflib.unified_diff(*lines, f"a/{name}", f"b/{name}")
    return "".join(shown), [*problems, *_missing(changed, found)]


def find_in_repository(root: Path, rows: Iterable[Row]) -> tuple[dict[ContainerKey, tuple[str, int]], list[str]]:
    """Return the file and line of the container of each row, and what was not found; nothing is changed.

    Files are named from the root of the Git repository around the folder, as code hosts want them.
    """
    wanted: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        wanted.setdefault((row.kind, row.namespace, row.name), []).append(row)
    root = root.resolve()
    top = next((each for each in (root, *root.parents) if (each / ".git").exists()), root)
    seen: set[tuple[str, str, str]] = set()
    problems: list[str] = []
    places: dict[ContainerKey, tuple[str, int]] = {}
    for path, text in _manifests(root, problems):
        for document in _documents(text, str(path.relative_to(root)), problems):
            for key in _meant(document, wanted)[:1]:
                seen.add(key)
                for row in wanted[key]:
                    if (container := _container(document, row)) is not None:
                        places.setdefault(row.key, (path.relative_to(top).as_posix(), container.lc.line + 1))
    return places, [*problems, *_missing(wanted, seen)]


def _manifests(root: Path, problems: list[str]) -> Iterator[tuple[Path, str]]:
    """Return the YAML files below a folder with their text as it is, line ends too; templates are left out."""
    for path in sorted(each for suffix in ("*.yaml", "*.yml") for each in root.rglob(suffix)):
        if ".git" in path.parts or not path.is_file():
            continue
        try:
            text = path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{path.relative_to(root)}: cannot be read: {error}")
            continue
        if "{{" not in text:
            yield path, text


def _missing(wanted: _Workloads, found: set[tuple[str, str, str]]) -> list[str]:
    """Return which workloads have no manifest, with the reason where one is known."""
    problems = []
    for key in sorted(wanted.keys() - found):
        kind, namespace, name = key
        manager = wanted[key][0].managed_by
        reason = f"{manager} makes it: set sizes there" if manager else "no manifest found"
        problems.append(f"{kind} {namespace}/{name}: {reason}")
    return problems


def _meant(document: Any, wanted: _Workloads) -> list[tuple[str, str, str]]:
    """Return the workloads that a manifest may be; one without namespace is of whichever it is applied to."""
    meta = document.get("metadata") or {}
    kind, name, namespace = document.get("kind"), meta.get("name"), meta.get("namespace")
    return [key for key in wanted if key[0] == kind and key[2] == name and namespace in (None, key[1])]


def edited(text: str, wanted: _Workloads, found: set[tuple[str, str, str]], problems: list[str], subject: str) -> str:
    """Return the text of a file with new amounts; notes which workloads it holds."""
    lines = text.split("\n")
    edits: list[tuple[int, int, int, list[str]]] = []
    for document in _documents(text, subject, problems):
        keys = _meant(document, wanted)
        if len(keys) > 1:
            kind, _, name = keys[0]
            problems.append(f"{subject}: {kind} {name} has no namespace and is in {len(keys)} of them")
        if len(keys) != 1:
            continue
        kind, _, name = keys[0]
        found.add(keys[0])
        for row in wanted[keys[0]]:
            container = _container(document, row)
            if container is None:
                problems.append(f"{subject}: {kind} {name} has no container {row.container}")
                continue
            try:
                edits += _edits(lines, container, resources(row, removing=True))
            except InvalidInput as error:
                problems.append(f"{subject}: {kind} {name}: {error}")
    # From the end, so that places stay what they were.
    for line, start, end, new in sorted(edits, key=lambda edit: edit[:2], reverse=True):
        if start >= 0:
            lines[line] = lines[line][:start] + new[0] + lines[line][end:]
        else:
            lines[line : line + end] = new
    return "\n".join(lines)


def _documents(text: str, subject: str, problems: list[str]) -> Iterator[Any]:
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ImportError as error:
        raise InvalidInput("needs ruamel.yaml: pip install kubetide[git]", field="--repo") from error
    try:
        yield from (each for each in list(YAML().load_all(StringIO(text))) if isinstance(each, dict))
    except YAMLError as error:
        problems.append(f"{subject}: is not YAML: {' '.join(str(error).split())[:120]}")


def _container(document: Any, row: Row) -> Any:
    spec = document.get("spec") or {}
    if row.kind == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    pod = (spec.get("template") or {}).get("spec") or {}
    listed = pod.get("initContainers" if row.sidecar else "containers") or ()
    return next((each for each in listed if each.get("name") == row.container), None)


def _edits(lines: Sequence[str], container: Any, wanted: Mapping[str, Any]) -> list[tuple[int, int, int, list[str]]]:
    """Return replacements (line, from, to, text) and insertions or removals (line, -1, how many lines go, lines)."""
    present = container.get("resources")
    if not present:
        key = "resources" if "resources" in container else "name"
        line, column = container.lc.key(key)
        pad = " " * column
        added = [f"{pad}resources:"] if key == "name" else []
        for part, amounts in wanted.items():
            kept = {key: value for key, value in amounts.items() if value is not None}
            if kept:
                added.append(f"{pad}  {part}:")
                added += [f"{pad}    {key}: {value}" for key, value in kept.items()]
        _must_be_block(lines, line, column, key)
        below = (line + 1, -1, 0, added)
        if key == "name":
            return [below]
        empty = _EMPTY.match(lines[line], column + len("resources"))
        if empty is None:
            raise InvalidInput("empty resources: write them by hand", field=f"line {line + 1}")
        return [(line, empty.start(), empty.end(), [":"]), below]
    edits: list[tuple[int, int, int, list[str]]] = []
    for part, amounts in wanted.items():
        edits += _part_edits(lines, present, part, amounts)
    return edits


def _part_edits(
    lines: Sequence[str], present: Any, part: str, amounts: Mapping[str, str | None]
) -> list[tuple[int, int, int, list[str]]]:
    kept = {key: value for key, value in amounts.items() if value is not None}
    if not present.get(part):
        if not kept:
            return []
        sibling = next(iter(present))
        line, column = present.lc.key(sibling)
        _must_be_block(lines, line, column, sibling)
        pad = " " * column
        return [(line, -1, 0, [f"{pad}{part}:", *(f"{pad}  {key}: {value}" for key, value in kept.items())])]
    edits: list[tuple[int, int, int, list[str]]] = []
    held = present[part]
    gone = [key for key, value in amounts.items() if value is None and key in held]
    if gone and len(gone) == len(held):
        line, column = present.lc.key(part)
        _must_be_block(lines, line, column, part)
        edits.append((line, -1, 1, []))
    for key, value in amounts.items():
        if key not in held:
            if value is not None:
                first = next(iter(held))
                line, column = held.lc.key(first)
                _must_be_block(lines, line, column, first)
                edits.append((line, -1, 0, [f"{' ' * column}{key}: {value}"]))
            continue
        if value is None:
            line, column = held.lc.key(key)
            _must_be_block(lines, line, column, key)
            edits.append((line, -1, 1, []))
            continue
        line, column = held.lc.value(key)
        scalar = _SCALAR.match(lines[line], column)
        if scalar is None:
            raise InvalidInput("is not a plain value", field=f"{part}.{key}")
        if scalar[0].strip("\"'") != value:
            edits.append((line, scalar.start(), scalar.end(), [value]))
    return edits


def _must_be_block(lines: Sequence[str], line: int, column: int, key: str) -> None:
    """Check that a key begins its line, apart from the dash of a list: only then lines can be added beside it."""
    head, tail = lines[line][:column], lines[line][column:]
    if head.strip(" -") or not tail.startswith(key):
        raise InvalidInput("flow style: write the amounts by hand", field=f"line {line + 1}")
