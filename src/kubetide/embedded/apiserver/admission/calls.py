"""The questions that a write puts to webhooks, and the generator that puts them."""

from collections.abc import Generator
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace

from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import Entry

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversion webhook is asked for: entries in the version of the resource, or an object as it is stored."""

    resource: ApiResource
    entries: tuple[Entry, ...] = ()
    obj: Raw | None = None


class AdmissionCall(msgspec.Struct, frozen=True, kw_only=True):
    """What webhooks are asked about. Objects are as they are stored."""

    operation: Operation
    resource: ApiResource
    subresource: str
    namespace: str
    name: str
    obj: Raw | None
    old: Raw | None
    request: Request
    dry_run: bool
    options: Raw
    kind: tuple[str, str, str] | None = None
    """Group, version and kind of the object where it is not the resource's own (scale, eviction)."""
    warnings: list[str] = msgspec.field(default_factory=list)
    """What webhooks want the client to be warned of."""

    def with_object(self, obj: Raw | None) -> "AdmissionCall":
        """Return the same question about a changed object."""
        return replace(self, obj=obj)


T = TypeVar("T")

Parts = Generator["AdmissionCall | Conversion", Raw | None, T]
"""A part of a verb that may have to ask, and what it finds out."""

Steps = Generator[AdmissionCall | Conversion, Raw | None, Answer]
