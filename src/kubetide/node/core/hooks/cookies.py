"""Who is in which core scheduling group: the memory behind the cookies, and one container's turn.

    on     all processes known in the group: nothing · group known: share its cookie · else: make one
    off    take the cookies off, forget the container

Entries expire five minutes after they were last written; an entry without cookie or processes counts as missing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kubetide.node.core.hooks.core_sched import (
    CookieError,
    CookieKernel,
    NoSibling,
    add_cookie,
    assign_cookie,
    clear_cookie,
    get_cookie,
)

LIFETIME = timedelta(seconds=300)


@dataclass(slots=True)
class _Group:
    cookie: int
    pids: set[int]
    written: datetime


@dataclass(slots=True)
class _Member:
    group: str
    written: datetime


@dataclass(slots=True)
class Cookies:
    """Groups and members of one node."""

    kernel: CookieKernel
    groups: dict[str, _Group] = field(default_factory=dict)
    members: dict[str, _Member] = field(default_factory=dict)
    loaded: bool = False

    def load(self, containers: Iterable[tuple[str, str, Sequence[int]]], now: datetime) -> None:
        """Learn the cookies that exist, given (container key, group, processes); done once any could be read.

        A container whose cookie differs from the one already known for its group is left to the next turn.
        """
        for key, group, pids in containers:
            if not pids:
                continue
            cookie, carriers = get_cookie(self.kernel, pids)
            self.loaded = True
            if not cookie:
                continue
            known = self.groups.get(group)
            if known is None:
                self.groups[group] = _Group(cookie, set(carriers), now)
            elif known.cookie == cookie:
                known.pids |= set(carriers)
            else:
                continue
            self.members[key] = _Member(group, now)

    def enable(self, key: str, group: str, pids: Sequence[int], now: datetime) -> int:
        """Give a container's processes the cookie of its group; return the cookie, 0 when there is none yet."""
        if not pids:
            return 0
        known = self._group(group, now)
        if known is not None and known.pids >= set(pids):
            known.written = now
            self.members[key] = _Member(group, now)
            return known.cookie
        if known is not None:
            try:
                assigned, bad = assign_cookie(self.kernel, pids, sorted(known.pids), known.cookie)
            except NoSibling as error:
                known.pids -= set(error.siblings)
                self.members.pop(key, None)
            else:
                if not assigned:
                    return 0
                known.pids = (known.pids - set(bad)) | set(assigned)
                known.written = now
                self.members[key] = _Member(group, now)
                return known.cookie
        try:
            cookie, carriers = add_cookie(self.kernel, pids)
        except CookieError:
            return 0
        if cookie:
            self.groups[group] = _Group(cookie, set(carriers), now)
            self.members[key] = _Member(group, now)
        return cookie

    def disable(self, key: str, pids: Sequence[int], now: datetime) -> None:
        """Take the cookies off a container's processes if it ever had one; those that keep theirs are tried again."""
        member = self.members.get(key)
        if member is None or now - member.written > LIFETIME:
            self.members.pop(key, None)
            return
        cleared = clear_cookie(self.kernel, pids)
        _, keeping = get_cookie(self.kernel, [pid for pid in pids if pid not in cleared])
        known = self.groups.get(member.group)
        if known is not None:
            known.pids -= set(cleared)
        if keeping:
            member.written = now
        else:
            del self.members[key]

    def sweep(self, now: datetime) -> None:
        """Forget what was not written for five minutes."""
        self.groups = {name: one for name, one in self.groups.items() if now - one.written <= LIFETIME}
        self.members = {key: one for key, one in self.members.items() if now - one.written <= LIFETIME}

    def _group(self, name: str, now: datetime) -> _Group | None:
        known = self.groups.get(name)
        if known is None or not known.cookie or not known.pids or now - known.written > LIFETIME:
            return None
        return known
