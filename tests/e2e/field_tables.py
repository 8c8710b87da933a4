"""The table of built-in fields as a real API server would have it: from its OpenAPI documents to our own lines."""

from typing import Any

from kubetide.api.objects import hpa_versions
from kubetide.embedded.apiserver.builtin import builtin_resources

SUBRESOURCE_BODIES = (
    ("autoscaling/v1", "Scale"),
    ("policy/v1", "Eviction"),
    ("v1", "Binding"),
    ("authentication.k8s.io/v1", "TokenRequest"),
)
_PREFIX = "#/components/schemas/"

Raw = dict[str, Any]


def wanted_kinds() -> list[tuple[str, str]]:
    """Return the API version and kind of everything that the embedded server takes."""
    found = {(each.api_version, each.kind) for each in builtin_resources(hpa_versions.to_v2, hpa_versions.v1_from_v2)}
    return sorted(found | set(SUBRESOURCE_BODIES))


def render(documents: dict[str, Raw], kinds: list[tuple[str, str]]) -> str:
    """Return one line per type: the kinds first, then the types inside them."""
    schemas: dict[str, Raw] = {}
    for document in documents.values():
        schemas |= (document.get("components") or {}).get("schemas") or {}
    roots = {}
    for name, schema in schemas.items():
        for kind in schema.get("x-kubernetes-group-version-kind") or ():
            version = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
            roots[version, kind["kind"]] = name
    inner: dict[str, Raw] = {}
    for kind in kinds:
        _collect(schemas, schemas[roots[kind]], inner)
    names = _short_names(inner)
    lines = [f"{version} {kind}: {_fields(schemas, schemas[roots[version, kind]], names)}" for version, kind in kinds]
    lines += sorted(f"{names[name]}: {_fields(schemas, schema, names)}" for name, schema in inner.items())
    return "\n".join(lines) + "\n"


def _collect(schemas: dict[str, Raw], schema: Raw, found: dict[str, Raw]) -> None:
    for member in (schema.get("properties") or {}).values():
        reference = _reference(member)[1]
        if reference and reference not in found and "properties" in schemas[reference]:
            found[reference] = schemas[reference]
            _collect(schemas, schemas[reference], found)


def _reference(schema: Raw) -> tuple[str, str]:
    """Return how a member holds another type ([], {} or directly), and which."""
    for part in schema.get("allOf") or ():
        schema = {**schema, **part}
    if "$ref" in schema:
        return "", schema["$ref"].removeprefix(_PREFIX)
    if "items" in schema:
        mark, name = _reference(schema["items"])
        return f"[]{mark}", name
    if isinstance(schema.get("additionalProperties"), dict):
        mark, name = _reference(schema["additionalProperties"])
        return f"{{}}{mark}", name
    return "", ""


def _short_names(found: dict[str, Raw]) -> dict[str, str]:
    """Return the last part of each name, with group and version before it where that would be two things."""
    taken: dict[str, list[str]] = {}
    for name in found:
        taken.setdefault(name.rpartition(".")[2], []).append(name)
    return {
        name: short if len(names) == 1 else "/".join(name.split(".")[-3:])
        for short, names in taken.items()
        for name in names
    }


def _fields(schemas: dict[str, Raw], schema: Raw, names: dict[str, str]) -> str:
    return ", ".join(
        f"{field}{_type(schemas, member, names)}" for field, member in sorted((schema.get("properties") or {}).items())
    )


def _type(schemas: dict[str, Raw], member: Raw, names: dict[str, str]) -> str:
    mark, reference = _reference(member)
    if reference in names:
        return f" {mark}{names[reference]}"
    below = schemas.get(reference, member)
    is_free = bool(reference) and (below.get("type") == "object" or "type" not in below) and "oneOf" not in below
    return f" {mark}*" if is_free else ""
