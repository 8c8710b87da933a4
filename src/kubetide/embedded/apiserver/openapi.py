"""OpenAPI, as far as kubectl reads it: which parameters writes take, and the fields of each kind for `explain`.

Custom resources show their own schema. Built-in kinds show the fields that kubetide's typed objects declare, with
unknown fields allowed: the real types have more. Version 2 is a bare document, which makes kubectl rely on the
server for validation.
"""

import types
from functools import lru_cache
from typing import Any

import msgspec

from kubetide.api.objects import scheme
from kubetide.embedded.apiserver.resources import ApiResource, Registry
from kubetide.embedded.apiserver.rest.status import Raw, no_such_path

_INFO = {"title": "kubetide embedded API server", "version": "v1.32.0"}
_STRING: Raw = {"type": "string"}
_FREE: Raw = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def root(versions: list[tuple[str, str]], generation: int) -> Raw:
    """Return the list of documents: one per group and version."""
    paths = {}
    for group, version in versions:
        name = f"apis/{group}/{version}" if group else f"api/{version}"
        paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={generation}"}
    return {"paths": paths}


def document(registry: Registry, group: str, version: str) -> Raw:
    """Return the version 3 document of one group and version."""
    resources = [r for r in registry.all() if r.group == group and r.version == version]
    if not resources:
        raise no_such_path()
    schemas: Raw = {}
    paths: Raw = {}
    for resource in resources:
        name = schema_name(resource)
        schemas[name] = _schema(resource)
        paths.update(_paths(resource, name))
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def schema_name(resource: ApiResource) -> str:
    """Return the name of a kind's schema: reversed group, version, kind."""
    reverse = ".".join(reversed(resource.group.split("."))) if resource.group else "io.k8s.api.core"
    return f"{reverse}.{resource.version}.{resource.kind}"


def _paths(resource: ApiResource, name: str) -> Raw:
    base = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = f"{base}/namespaces/{{namespace}}" if resource.namespaced else base
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    body = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}

    def operation(action: str, parameters: tuple[str, ...] = ()) -> Raw:
        return {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
            "parameters": [{"name": text, "in": "query", "schema": _STRING} for text in parameters],
            "responses": {"200": {"description": "OK", "content": body}},
        }

    written = ("dryRun", "fieldManager", "fieldValidation")
    paths: Raw = {f"{scope}/{resource.plural}": {"post": operation("post", written)}}
    if resource.verbs != ("create",):
        paths[f"{scope}/{resource.plural}"]["get"] = operation("list", ("labelSelector", "fieldSelector", "watch"))
        paths[f"{scope}/{resource.plural}/{{name}}"] = {
            "get": operation("get"),
            "put": operation("put", written),
            "patch": operation("patch", (*written, "force")),
            "delete": operation("delete", ("dryRun", "gracePeriodSeconds", "propagationPolicy")),
        }
    return paths


def _schema(resource: ApiResource) -> Raw:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    if resource.crd is not None:
        schema = {"type": "object", **resource.crd.schema}
    else:
        schema = dict(_builtin(resource.group, resource.version, resource.plural))
    properties = {
        "apiVersion": {"type": "string", "description": "The version of the schema of this object."},
        "kind": {"type": "string", "description": "The kind of this object."},
        **(schema.get("properties") or {}),
    }
    metadata = {"type": "object", "description": "Standard object metadata."}
    properties["metadata"] = {**(properties.get("metadata") or {}), **metadata}
    schema["properties"] = properties
    schema.setdefault("description", f"{resource.kind} of {resource.api_version}.")
    schema["x-kubernetes-group-version-kind"] = [kind]
    return schema


@lru_cache(maxsize=256)
def _builtin(group: str, version: str, plural: str) -> types.MappingProxyType[str, Any]:
    for value in vars(scheme).values():
        if isinstance(value, scheme.Resource) and (value.group, value.version, value.plural) == (
            group,
            version,
            plural,
        ):
            return types.MappingProxyType(_of_type(msgspec.inspect.type_info(value.type), ()))
    properties = {"spec": _FREE, "status": _FREE}
    return types.MappingProxyType({"type": "object", "properties": properties, **_FREE})


def _of_type(info: msgspec.inspect.Type, above: tuple[type, ...]) -> Raw:
    """Return the schema of a declared type; a type inside itself is left open."""
    match info:
        case msgspec.inspect.StructType():
            if info.cls in above:
                return _FREE
            properties = {field.encode_name: _of_type(field.type, (*above, info.cls)) for field in info.fields}
            return {"type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": True}
        case msgspec.inspect.UnionType():
            real = [member for member in info.types if not isinstance(member, msgspec.inspect.NoneType)]
            return _of_type(real[0], above) if real else _FREE
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            return {"type": "array", "items": _of_type(info.item_type, above)}
        case msgspec.inspect.DictType():
            return {"type": "object", "additionalProperties": _of_type(info.value_type, above)}
        case msgspec.inspect.IntType():
            return {"type": "integer"}
        case msgspec.inspect.FloatType():
            return {"type": "number"}
        case msgspec.inspect.BoolType():
            return {"type": "boolean"}
        case msgspec.inspect.StrType() | msgspec.inspect.EnumType():
            return _STRING
        case msgspec.inspect.DateTimeType():
            return {"type": "string", "format": "date-time"}
    return _FREE


def swagger() -> Raw:
    """Return the version 2 document."""
    return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}


def swagger_protobuf() -> bytes:
    """Return the version 2 document in the form kubectl asks for: field numbers of the public OpenAPI message."""
    info = _field(1, _INFO["title"].encode()) + _field(2, _INFO["version"].encode())
    return _field(1, b"2.0") + _field(2, info) + _field(8, b"") + _field(9, b"")


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data
