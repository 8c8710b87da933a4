"""The embedded API server of an agent that runs on a real machine.

Where KUBETIDE_AUDIT_LOG names a file, the server's audit log goes there: a drill that runs these tests in a process or
a machine of their own has its checker read it.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kubetide import crds
from kubetide.clock import Clock
from kubetide.embedded.apiserver.auth.audit import AuditLevel, AuditLog
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.requests import ADMIN, User
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.kube.client.client import Client

AUDIT_LOG = "KUBETIDE_AUDIT_LOG"
AGENT = User("kubetide-node-1", ADMIN.groups)
DEFAULT_NAMESPACE: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}


@contextmanager
def agent_server(clock: Clock, objects: Iterable[dict[str, Any]]) -> Iterator[ApiServer]:
    """A server with kubetide's resource definitions, the default namespace and some objects."""
    with ExitStack() as stack:
        path = os.environ.get(AUDIT_LOG)
        log = stack.enter_context(AuditLog(Path(path), clock, level=AuditLevel.REQUEST)) if path else None
        api = ApiServer(clock=clock, audit=log)
        for raw in (*crds.load_all(), DEFAULT_NAMESPACE, *objects):
            api.insert(dict(raw))
        yield api


def agent_client(api: ApiServer, clock: Clock) -> Client:
    """Return the client of the agent."""
    return Client(InProcessTransport(api, user=AGENT), clock=clock)
