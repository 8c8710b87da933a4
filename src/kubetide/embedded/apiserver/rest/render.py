"""How objects are shown: as JSON of the version asked for, as a Table for people, or as metadata only.

The `Accept` header decides. kubectl asks for `as=Table` and takes plain JSON as second choice; metadata-only
informers ask for `as=PartialObjectMetadata`.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from kubetide.api.values import media_types
from kubetide.api.values.media_types import Form
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.rest.status import Raw, StatusError
from kubetide.embedded.apiserver.storage.objects import Entry
from kubetide.embedded.apiserver.tables.columns import table

_encode = msgspec.json.Encoder().encode


def wanted_form(accept: str) -> Form:
    """Return the first form in an Accept header that the server can make; 406 if it can make none."""
    form = media_types.wanted_form(accept)
    if form is None:
        raise StatusError(406, "NotAcceptable", media_types.ACCEPTED)
    return form


class View(msgspec.Struct, frozen=True):
    """One way to show the objects of one resource."""

    resource: ApiResource
    form: Form = "object"
    now: datetime | None = None
    include: str = "Metadata"

    def line(self, entry: Entry) -> bytes:
        """Return one object as a watch shows it."""
        if self.form == "table":
            return _encode(table(self.resource, [self.raw(entry)], now=self.now, include=self.include))
        return self.object(entry)

    def object(self, entry: Entry) -> bytes:
        """Return one object as JSON."""
        if self.form == "metadata":
            return entry.view("metadata", _metadata_only)
        resource = self.resource
        if resource.from_storage is not None:
            return entry.view(resource.api_version, resource.from_storage)
        if resource.crd is not None:
            return entry.view(resource.api_version, resource.crd.show)
        return entry.encoded

    def raw(self, entry: Entry) -> Raw:
        """Return one object in the version of this view; it may be changed by the caller."""
        crd = self.resource.crd
        if crd is not None and crd.converts(entry.obj):
            shown: Raw = msgspec.json.decode(entry.view(crd.api_version, crd.show))
            return shown
        return in_version(self.resource, entry.copy())

    def bookmark(self, obj: Raw) -> Raw:
        """Return a bookmark in the form of this view."""
        if self.form == "table":
            return table(self.resource, [obj], now=self.now, include="Metadata", bookmark=True)
        return _metadata_only(obj) if self.form == "metadata" else obj


def make_view(resource: ApiResource, request: Request, now: datetime) -> View:
    """Return the view that a request asks for."""
    return View(resource, wanted_form(request.accept), now, request.query.get("includeObject", "Metadata"))


def in_version(resource: ApiResource, stored: Raw) -> Raw:
    """Return a stored object in the version of `resource`."""
    if resource.from_storage is not None:
        return resource.from_storage(stored)
    if resource.crd is not None:
        return resource.crd.show(stored)
    return stored


def answer_object(view: View, entry: Entry, status: int = 200) -> Answer:
    """Return one object as an answer."""
    if view.form == "table":
        return Answer(status, _encode(table(view.resource, [view.raw(entry)], now=view.now, include=view.include)))
    return Answer(status, view.object(entry))


def unconverted(view: View, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries that a conversion webhook has to make ready before they can be shown."""
    crd = view.resource.crd
    if crd is None or crd.webhook is None or view.form == "metadata":
        return ()
    return tuple(entry for entry in entries if not crd.is_ready(entry))


def answer_raw(obj: Raw, status: int = 200) -> Answer:
    """Return any JSON as an answer."""
    return Answer(status, _encode(obj))


def answer_list(view: View, entries: Iterable[Entry], metadata: Raw) -> Answer:
    """Return a list as an answer; the items are joined, not encoded again."""
    resource = view.resource
    if view.form == "table":
        rows = table(resource, [view.raw(entry) for entry in entries], now=view.now, include=view.include)
        rows["metadata"] = metadata
        return Answer(200, _encode(rows))
    kind, api_version = resource.to_list_kind(), resource.api_version
    if view.form == "metadata":
        kind, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
    head = _encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    items = b",".join([view.object(entry) for entry in entries])
    return Answer(200, head[:-1] + b',"items":[' + items + b"]}")


def _metadata_only(obj: Raw) -> Raw:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj.get("metadata") or {}}
