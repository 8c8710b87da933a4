"""Lists, pages of lists, and where a watch begins.

A page carries the revision of the first page; later pages show the state at that revision, reconstructed from the
log, so that a list read in pages is one consistent list. A revision the log no longer reaches is 410 Gone.
"""

import base64
import binascii
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter

import msgspec

from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.filters import Filter, Render, make_filter, shard_of_request
from kubetide.embedded.apiserver.rest.requests import Request, RequestTarget
from kubetide.embedded.apiserver.rest.status import Cause, StatusError, bad_request, gone, invalid, timed_out
from kubetide.embedded.apiserver.rest.watching import WatchPlan
from kubetide.embedded.apiserver.storage.objects import Collection, Entry, ObjectStore, StoreKey

_key = attrgetter("key")


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list, or all of it."""

    entries: list[Entry]
    revision: int
    continue_token: str = ""
    remaining: int | None = None
    shard: str = ""
    """The shard selector that was applied."""


class _Token(msgspec.Struct, frozen=True):
    rv: int
    ns: str
    name: str


def list_page(
    store: ObjectStore, resource: ApiResource, target: RequestTarget, request: Request, *, sharded: bool = False
) -> Page:
    """Return the part of a list that the request asks for; without `sharded` its shard selector is ignored."""
    query = request.query
    wanted = request_filter(resource, target, request, sharded=sharded)
    collection = store.collection(resource.storage)
    limit = _number(query.get("limit"), "limit")
    token = query.get("continue", "")
    if token:
        start = _read_token(token)
        entries = _state_at(collection, wanted, start.rv, expired="The provided continue parameter is too old.")
        entries = entries[bisect_right(entries, StoreKey(start.ns, start.name), key=_key) :]
        revision = start.rv
    else:
        entries, revision = _fresh(store, collection, wanted, query.get("resourceVersion", ""), request)
    if not wanted.takes_all:
        # One more than fits: whether there is another page; what is on it, its own request looks for.
        entries = list(islice(filter(wanted.matches, entries), limit + 1 if limit else None))
    shard = str(wanted.shard) if wanted.shard is not None else ""
    if limit and len(entries) > limit:
        page, rest = entries[:limit], len(entries) - limit
        return Page(page, revision, _write_token(revision, page[-1].key), rest if wanted.takes_all else None, shard)
    return Page(entries, revision, shard=shard)


def _fresh(
    store: ObjectStore, collection: Collection, wanted: Filter, version: str, request: Request
) -> tuple[list[Entry], int]:
    match = request.query.get("resourceVersionMatch", "")
    if match not in ("", "Exact", "NotOlderThan"):
        raise bad_request(f"resourceVersionMatch: unknown value {match!r}")
    if match and not version:
        raise bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
    revision = parse_version(version)
    if revision > store.revision:
        raise too_new(revision, store.revision)
    if match == "Exact":
        if revision == 0:
            raise bad_request('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
        return _state_at(collection, wanted, revision), revision
    return collection.entries(wanted.namespace), store.revision


def _state_at(collection: Collection, wanted: Filter, revision: int, expired: str = "") -> list[Entry]:
    try:
        return collection.entries_at(revision, wanted.namespace)
    except StatusError as error:
        raise gone(expired or error.message) from error


def request_filter(resource: ApiResource, target: RequestTarget, request: Request, *, sharded: bool = False) -> Filter:
    """Return the filter of a list, watch or collection delete."""
    wanted = make_filter(
        resource, target.namespace, request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
    )
    if target.name:
        return Filter(wanted.namespace, wanted.labels, wanted.fields, target.name)
    if sharded and "shardSelector" in request.query:
        return replace(wanted, shard=shard_of_request(request.query["shardSelector"]))
    return wanted


def plan_watch(
    store: ObjectStore,
    resource: ApiResource,
    target: RequestTarget,
    request: Request,
    render: Render,
    *,
    sharded: bool = False,
) -> WatchPlan:
    """Return where a watch begins and what it sends first.

    No resourceVersion, or "0", means the present state as ADDED events; a number means the changes after it;
    `sendInitialEvents` asks for the state and a bookmark after it.
    """
    query = request.query
    wanted = request_filter(resource, target, request, sharded=sharded)
    collection = store.collection(resource.storage)
    version = query.get("resourceVersion", "")
    revision = parse_version(version)
    if revision > store.revision:
        raise too_new(revision, store.revision)
    asks_initial = "sendInitialEvents" in query
    send_initial = request.flag("sendInitialEvents") if asks_initial else revision == 0
    if asks_initial and query.get("resourceVersionMatch") != "NotOlderThan":
        cause = Cause(
            "resourceVersionMatch",
            "FieldValueForbidden",
            'Forbidden: sendInitialEvents requires setting resourceVersionMatch to "NotOlderThan"',
        )
        raise invalid("meta.k8s.io", "ListOptions", "", [cause])
    bookmarks = request.flag("allowWatchBookmarks")
    plan = WatchPlan(
        store=store,
        resource=resource,
        log=collection.log,
        filter=wanted,
        render=render,
        position=collection.log.end,
        revision=store.revision,
        bookmarks=bookmarks,
        timeout=_number(query.get("timeoutSeconds"), "timeoutSeconds") or None,
    )
    if send_initial:
        entries = collection.entries(wanted.namespace)
        plan.initial = list(entries) if wanted.takes_all else [entry for entry in entries if wanted.matches(entry)]
        plan.initial_end = asks_initial and bookmarks
    elif revision:
        plan.position = collection.log.position_after(revision)
    return plan


def parse_version(text: str) -> int:
    """Return a resourceVersion as a number; absent is 0."""
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise bad_request(f"Invalid value: {text!r}: resourceVersion must be a number")
    return int(text)


def too_new(asked: int, current: int) -> StatusError:
    """A revision that does not exist yet: the client must ask again later."""
    error = timed_out(f"Too large resource version: {asked}, current: {current}")
    error.causes = (Cause("", "ResourceVersionTooLarge", "Too large resource version"),)
    return error


def _number(text: str | None, name: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise bad_request(f"invalid {name}: {text!r}")
    return int(text)


def _write_token(revision: int, key: StoreKey) -> str:
    token = msgspec.json.encode(_Token(revision, key.namespace, key.name))
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _read_token(text: str) -> _Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise bad_request("continue key is not valid") from error
