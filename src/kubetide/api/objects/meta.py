"""What all Kubernetes objects share: metadata, owner references, keys.

Structs hold only the fields that kubetide reads; unknown fields are passed over. Absent and `null` are both `None`,
because Kubernetes uses them alike, so readers write `meta.labels or {}`.
"""

from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec


class ApiObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of everything decoded from the API: immutable, camelCase on the wire, never part of a reference cycle."""


class OwnerReference(ApiObject, frozen=True, kw_only=True, gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None


EMPTY_META = ObjectMeta()


class TypedObject(ApiObject, frozen=True, kw_only=True, gc=False):
    """An object with metadata. Items of a list carry no apiVersion and kind."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = EMPTY_META


class ObjectReference(ApiObject, frozen=True, kw_only=True, gc=False):
    """A pointer to an object, as events and scale targets hold it."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class HasMetadata(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


class ObjectKey(NamedTuple):
    """Names an object of a known type; the namespace is empty for cluster-scoped ones."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @classmethod
    def parse(cls, text: str) -> "ObjectKey":
        """Split `namespace/name` or `name`."""
        namespace, _, name = text.rpartition("/")
        return cls(namespace, name)


def key_of(obj: HasMetadata) -> ObjectKey:
    """Return the key of an object."""
    return ObjectKey(obj.metadata.namespace, obj.metadata.name)


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """Return the owner that manages the object, if one does."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return owner
    return None


def group_of(api_version: str) -> str:
    """Return the group of an apiVersion; the core group is empty."""
    group, slash, _ = api_version.rpartition("/")
    return group if slash else ""


class CrossVersionObjectReference(ApiObject, frozen=True, kw_only=True, gc=False):
    """The workload that an autoscaler looks after, in the same namespace."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
