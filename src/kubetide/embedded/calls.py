"""The question that a write puts to admission, and the generator that puts it."""

from collections.abc import Generator
from typing import Literal

import msgspec
from msgspec.structs import replace

from kubetide.embedded.requests import Answer, Request
from kubetide.embedded.resources import ApiResource
from kubetide.embedded.status import Raw

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


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
    """What webhooks want the client to be told."""

    def with_object(self, obj: Raw | None) -> "AdmissionCall":
        """Return the same question about a changed object."""
        return replace(self, obj=obj)


Steps = Generator[AdmissionCall, Raw | None, Answer]
