"""Who is looking, and as whom the cluster is read for them.

    kubeconfig   on a laptop: everybody who reaches the port sees what the contexts of the kubeconfig may see, so it is
                 on loopback and answers to names of this machine only (another name that resolves to it would let a
                 web page read the cluster through the browser)
    token        in a cluster: every visitor logs in with a token of their own, and everything is read with it; the
                 cookie is a random name for it, the token itself never leaves the server again

A session that nobody has used for an hour is forgotten, and its token with it.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from kubetide.api.values.codec import encode
from kubetide.clock import Clock
from kubetide.dashboard.core.health import Permission
from kubetide.dashboard.core.throttling import Throttled
from kubetide.dashboard.web.components import Remembered
from kubetide.dashboard.web.watching import INTERVAL, ClusterWatch
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.client.client import Client
from kubetide.verdicts.cluster_reader import MEMBERS

SESSION = timedelta(hours=1)
MOST_SESSIONS = 32
"""Each keeps a cluster of its own in memory."""
THROTTLED_SECONDS = 30.0
LONGEST_TOKEN = 16 * 1024
IN_CLUSTER = "in-cluster"

Observe = Callable[[str, int, float], None]
Connect = Callable[[str, str, Observe], Client]
"""Context, token (empty: that of the kubeconfig), and who is told of every request."""


@dataclass(slots=True)
class Session:
    """One identity that looks at one cluster."""

    context: str
    watch: ClusterWatch
    task: "asyncio.Task[None]"
    used: float
    throttled: Remembered[Throttled]
    """Pods that are held back by their CPU limit: asked for on one page only, and not for every look."""
    name: str = ""
    permissions: tuple[Permission, ...] = ()


@dataclass(slots=True)
class Visitors:
    """Sessions by context (kubeconfig) or by cookie (token)."""

    connect: Connect
    clock: Clock
    group: asyncio.TaskGroup
    contexts: Sequence[str]
    current: str
    by_token: bool = False
    interval: timedelta = INTERVAL
    _sessions: dict[str, Session] = field(default_factory=dict)

    def of_context(self, context: str) -> Session:
        """Return the session of a context of the kubeconfig."""
        if context not in self.contexts:
            raise InvalidInput(f"there is no context {context!r}")
        if (session := self._sessions.get(context)) is None:
            session = self._sessions[context] = self._open(context, "", "")
        session.used = self.clock.monotonic()
        return session

    def of_cookie(self, cookie: str) -> Session | None:
        """Return the session of a visitor who has logged in."""
        self._forget_old()
        session = self._sessions.get(cookie)
        if session is not None:
            session.used = self.clock.monotonic()
        return session

    async def login(self, token: str, namespace: str) -> str:
        """Return the cookie of a new session; raises where the API server does not accept the token."""
        token = token.strip()
        if not token or len(token) > LONGEST_TOKEN or any(not 32 < ord(letter) < 127 for letter in token):
            raise InvalidInput("a token is one line of printable characters")
        self._forget_old()
        if len(self._sessions) >= MOST_SESSIONS:
            self._close(min(self._sessions, key=lambda name: self._sessions[name].used))
        probe = self.connect(IN_CLUSTER, token, lambda method, status, seconds: None)
        try:
            permissions = await allowed(probe, namespace)
            name = await who_am_i(probe)
        finally:
            await probe.close()
        cookie = secrets.token_urlsafe(32)
        session = self._open(IN_CLUSTER, token, namespace)
        session.permissions, session.name = permissions, name
        self._sessions[cookie] = session
        return cookie

    def logout(self, cookie: str) -> None:
        """Forget a session."""
        if cookie in self._sessions:
            self._close(cookie)

    def close(self) -> None:
        """Forget all of them."""
        for name in list(self._sessions):
            self._close(name)

    def _open(self, context: str, token: str, namespace: str) -> Session:
        watch = ClusterWatch(
            lambda observe: self.connect(context, token, observe),
            self.clock,
            namespace=namespace,
            interval=self.interval,
        )
        task = _started(self.group, watch, context)
        return Session(context, watch, task, self.clock.monotonic(), Remembered(self.clock, THROTTLED_SECONDS))

    def _close(self, name: str) -> None:
        self._sessions.pop(name).task.cancel()

    def _forget_old(self) -> None:
        limit = self.clock.monotonic() - SESSION.total_seconds()
        for name in [name for name, session in self._sessions.items() if session.used < limit]:
            self._close(name)


def _started(group: asyncio.TaskGroup, watch: ClusterWatch, context: str) -> "asyncio.Task[None]":
    return group.create_task(watch.run(), name=f"dashboard/{context}")


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False
    reason: str = ""


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


async def allowed(client: Client, namespace: str = "") -> tuple[Permission, ...]:
    """Return what an identity may list, of all that the dashboard shows; asks the API server, and nobody else."""

    async def ask(group: str, plural: str) -> Permission:
        body = encode(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {
                    "resourceAttributes": {
                        "group": group,
                        "resource": plural,
                        "verb": "list",
                        **({"namespace": namespace} if namespace else {}),
                    }
                },
            }
        )
        answer = await client.request(
            "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body, retries=0
        )
        status = msgspec.json.decode(answer.body, type=_Review).status
        return Permission(resource=f"{plural}.{group}" if group else plural, allowed=status.allowed, note=status.reason)

    asked = [(resource.group, resource.plural) for resource in MEMBERS.values()]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(*each), name="dashboard/review") for each in asked]
    except* KubetideError as failed:
        raise failed.exceptions[0] from None
    return tuple(task.result() for task in tasks)


async def who_am_i(client: Client) -> str:
    """Return the name of an identity; empty where the server does not tell."""
    body = encode({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    try:
        answer = await client.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body, retries=0)
        found = msgspec.json.decode(answer.body)
    except (KubetideError, msgspec.DecodeError):
        return ""
    return str(((found.get("status") or {}).get("userInfo") or {}).get("username", ""))
