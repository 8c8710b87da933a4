"""Core scheduling cookies: which processes should get, share or lose one, from the cookies that they carry now.

    on     all processes carry the cookie of their group: nothing · group has one: share it · else: make one
    off    take the cookies off, forget the container

Nothing here talks to the kernel: the cookies in force come in as numbers by process, operations go out, and memory
follows what the kernel reports after them. A group is forgotten when none of its processes was seen for five minutes;
a group whose processes are all gone gets a new cookie.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kubetide.node.core.outcomes import CookieOutcome
from kubetide.node.core.plan import (
    ClearCookies,
    CookieOperation,
    CookiePlan,
    CreateCookie,
    Grouped,
    ShareCookie,
)

LIFETIME = timedelta(seconds=300)

Found = Mapping[int, int]
"""Cookies by process."""


@dataclass(slots=True)
class CookieGroup:
    """A group, its cookie, and the processes that carried it when they were last looked at."""

    cookie: int
    pids: set[int]
    seen: datetime


def carried(found: Found) -> tuple[int, list[int]]:
    """Return the first cookie that is not 0, and the processes that carry it."""
    cookie = next((one for one in found.values() if one), 0)
    return cookie, [pid for pid, one in found.items() if one and one == cookie]


def source_among(found: Found, pids: Iterable[int], cookie: int) -> int | None:
    """Return the first process that carries a cookie and can share it."""
    return next((pid for pid in pids if found.get(pid) == cookie), None)


@dataclass(slots=True)
class CookieMemory:
    """Groups and members of one node."""

    groups: dict[str, CookieGroup] = field(default_factory=dict)
    members: dict[str, datetime] = field(default_factory=dict)
    """When each container that was given a cookie, or had one when the agent started, was last seen with it."""
    _loaded: bool = False
    _refused: dict[str, set[int]] = field(default_factory=dict)
    """Processes that could not be given a new cookie, by group."""

    @property
    def processes(self) -> set[int]:
        """The processes that can share the cookie of their group."""
        return {pid for group in self.groups.values() for pid in group.pids}

    def plan(self, containers: tuple[Grouped, ...], found: Found, *, now: datetime) -> CookiePlan:
        """Return what should be done, given the cookies of all processes."""
        self._learn(containers, found, now)
        operations: list[CookieOperation] = []
        without: dict[str, list[int]] = {}
        for one in containers if self._loaded else ():
            readable = [pid for pid in one.pids if pid in found]
            if not one.enabled:
                carrying = tuple(pid for pid in sorted(readable) if found[pid])
                if carrying and one.key in self.members:
                    operations.append(ClearCookies(pids=carrying))
                continue
            group = self._group(one.group, now)
            source = source_among(found, sorted(group.pids), group.cookie) if group is not None else None
            if group is None or source is None:
                without.setdefault(one.group, []).extend(readable)
            elif missing := tuple(pid for pid in sorted(readable) if found[pid] != group.cookie):
                operations.append(ShareCookie(group=one.group, cookie=group.cookie, source=source, pids=missing))
        operations += [self._create(group, pids) for group, pids in without.items() if pids]
        return CookiePlan(at=now, containers=containers, found=found, operations=tuple(operations))

    def applied(self, plan: CookiePlan, outcomes: Iterable[CookieOutcome]) -> None:
        """Learn what the processes carry after the operations of a plan."""
        found = dict(plan.found)
        for operation, cookies, _ in outcomes:
            for pid in operation.pids:
                found.pop(pid, None)
            found.update(cookies)
            if not isinstance(operation, CreateCookie):
                continue
            cookie = cookies.get(operation.first, 0)
            if cookie and cookie != plan.found.get(operation.first):
                self._refused.pop(operation.group, None)
                self.groups[operation.group] = CookieGroup(cookie, {operation.first}, plan.at)
            else:
                self._refused.setdefault(operation.group, set()).add(operation.first)
        self._learn(plan.containers, found, plan.at)

    def cookie_of(self, container: Grouped) -> int:
        """Return the cookie that processes of a container share with their group; 0 if there is none."""
        group = self.groups.get(container.group)
        return group.cookie if group is not None and not group.pids.isdisjoint(container.pids) else 0

    def _create(self, group: str, pids: list[int]) -> CreateCookie:
        """Return the operation that gives a group its cookie, beginning with a process that did not refuse it."""
        refused = self._refused.get(group, set())
        first = next((pid for pid in pids if pid not in refused), pids[0])
        return CreateCookie(group=group, first=first, others=tuple(pid for pid in pids if pid != first))

    def _learn(self, containers: Iterable[Grouped], found: Found, now: datetime) -> None:
        """Bring groups and members up to what the processes carry."""
        if not self._loaded:
            self._adopt(containers, found, now)
        for group in self.groups.values():
            group.pids = {pid for pid in group.pids if found.get(pid) == group.cookie}
        for one in containers:
            if one.enabled:
                # Also a group none of whose processes could be read the last time: they still carry its cookie.
                known = self.groups.get(one.group)
                carriers = {pid for pid in one.pids if known is not None and found.get(pid) == known.cookie}
                if known is not None and carriers:
                    known.pids |= carriers
                    known.seen = now
                    self.members[one.key] = now
            elif not any(found.get(pid) for pid in one.pids):
                self.members.pop(one.key, None)
            elif one.key in self.members:
                # It keeps its cookie against our will, and is tried again.
                self.members[one.key] = now
        self.groups = {name: one for name, one in self.groups.items() if now - one.seen <= LIFETIME}
        self.members = {key: seen for key, seen in self.members.items() if now - seen <= LIFETIME}

    def _adopt(self, containers: Iterable[Grouped], found: Found, now: datetime) -> None:
        """Learn the cookies that were there before the agent; of different ones in a group the first counts."""
        for one in containers:
            self._loaded = self._loaded or any(pid in found for pid in one.pids)
            cookie, carriers = carried({pid: found[pid] for pid in one.pids if pid in found})
            if not cookie:
                continue
            group = self.groups.setdefault(one.group, CookieGroup(cookie, set(), now))
            if group.cookie == cookie:
                group.pids |= set(carriers)
                self.members[one.key] = now

    def _group(self, name: str, now: datetime) -> CookieGroup | None:
        known = self.groups.get(name)
        return known if known is not None and known.pids and now - known.seen <= LIFETIME else None
