"""What only running controllers know, found as `kubetide explain` finds it, with the client of the visitor."""

import base64
import binascii
import importlib
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from kubetide.api.objects.core import Lease
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import LEASES, MUTATING_WEBHOOKS
from kubetide.api.values.codec import decode_raw
from kubetide.cli.asking import join
from kubetide.cli.explain.history import events_about
from kubetide.cli.explain.numbers import KINDS
from kubetide.cli.places import ELECTED, Place, ask_with
from kubetide.config import load
from kubetide.dashboard.web.components import Record, Told
from kubetide.errors import KubetideError
from kubetide.kube.client.certificates import expiry
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.settings import COMPONENTS
from kubetide.vpa.admission.core.heartbeat import ADMISSION_LEASE

_AUDIT_SIZE = 100


class RunningComponents:
    """Asks the processes that a cluster's Leases announce, and those on this machine."""

    def __init__(self, local: Mapping[str, Sequence[Place]]) -> None:
        self._local = local
        """Places on this machine, by context; none where visitors log in."""

    async def explain(self, client: Client, context: str, kind: str, key: ObjectKey) -> Told:
        """Return what controllers and agents say about an object, also as the text of `kubetide explain`."""
        problems: list[str] = []
        node = key.name if kind == "node" else ""
        path = f"/explain/{kind}/{quote(str(key), safe='/')}"
        local = self._local.get(context, ())
        answers = [each for _, each in await ask_with(client, path, local=local, node=node, problems=problems)]
        found = [each for each in answers if isinstance(each, dict)]
        agent = next((each for each in found if kind == "node" and "node" in each), None)
        trace = join(kind, next((each for each in found if each is not agent), None), agent)
        if trace is None:
            why = "; ".join(problems) or "none was found by its Lease, in the kubeconfig or on a port of this machine"
            return Told(unknown=f"No running controller could be asked about it: {why}.")
        text: str = importlib.import_module(KINDS[kind].renderer).render(trace)
        return Told(trace=trace, lines=tuple(text.strip().splitlines()))

    async def events(self, client: Client, objects: Sequence[tuple[str, ObjectKey]]) -> list[Record]:
        """Return the events about objects, oldest first."""
        return list(await events_about(client, objects))

    async def statuses(self, client: Client, context: str) -> list[Record]:
        """Return what agents on this machine report; those in pods are asked on the page of their node."""
        local = self._local.get(context, ())
        answers = await ask_with(None, "/explain/status/self", local=local)
        found: dict[str, Record] = {}
        for _, answer in answers:
            for each in (answer.get("nodes") or [answer]) if isinstance(answer, dict) else ():
                if isinstance(each, dict) and each.get("node"):
                    found[str(each["node"])] = each
        return list(found.values())

    async def status(self, client: Client, context: str, node: str) -> Record:
        """Return what the agent of one node reports, here or in its pod."""
        path = f"/explain/status/{quote(node, safe='')}"
        answers = await ask_with(client, path, local=self._local.get(context, ()), node=node)
        found = (each for _, each in answers if isinstance(each, dict) and each.get("node") == node)
        return next(found, {})

    async def audit(self, client: Client, context: str, node: str) -> tuple[list[Record], str]:
        """Return what the agent of a node wrote, newest first."""
        problems: list[str] = []
        local = self._local.get(context, ())
        path = f"/events?size={_AUDIT_SIZE}"
        answers = await ask_with(client, path, local=local, node=node, problems=problems)
        events = [each for _, page in answers if isinstance(page, dict) for each in page.get("Events") or ()]
        if not events:
            return [], "; ".join(problems) or "no agent with an audit log answered"
        return [each for each in events if each.get("node", node) == node], ""

    async def leases(self, client: Client) -> list[Lease]:
        """Return the leases of the controllers, of all shards, and that of the admission webhook."""
        names, namespaces = {ADMISSION_LEASE}, set()
        for component in ELECTED:
            settings: Any = load(COMPONENTS[component], env=os.environ)
            names.add(settings.leader_elect_resource_name)
            namespaces.add(settings.leader_elect_resource_namespace)
        found: list[Lease] = []
        for namespace in sorted(namespaces):
            try:
                listed = await client.list(LEASES, namespace=namespace)
            except NotFound:
                continue
            found += [one for one in listed.items if any(one.metadata.name.startswith(name) for name in names)]
        return sorted(found, key=lambda one: (one.metadata.namespace, one.metadata.name))

    async def processes(self, client: Client, context: str) -> list[tuple[str, str]]:
        """Return who answers on this machine or is announced by a Lease, and whether it is ready."""
        problems: list[str] = []
        local = self._local.get(context, ())
        found = await ask_with(client, "/readyz", local=local, problems=problems, read=_readiness)
        rows = [(str(place), answer) for place, answer in found]
        return [*rows, *(("", problem) for problem in problems)]

    async def certificates(self, client: Client) -> Mapping[str, datetime | None]:
        """Return the ends of the CA bundles of webhooks that are kubetide's or upstream's."""
        path = MUTATING_WEBHOOKS.path()
        try:
            listed = decode_raw((await client.request("GET", path)).body, what=path)
        except KubetideError:
            return {}
        ends: dict[str, datetime | None] = {}
        for item in listed.get("items") or ():
            for hook in item.get("webhooks") or ():
                if bundle := (hook.get("clientConfig") or {}).get("caBundle"):
                    ends[str(hook.get("name"))] = _ends(bundle)
        return ends


def _readiness(_: str, status: int, body: bytes) -> str | None:
    """Return what a process reports about its readiness, None if it is not kubetide: anybody may use the port."""
    first, *notes = body.decode(errors="replace").strip().splitlines() or [""]
    words = {(200, "ok"): "ready", (503, "not yet"): "not ready yet"}.get((status, first))
    return None if words is None else "; ".join([words, *notes])


def _ends(bundle: str) -> datetime | None:
    try:
        return expiry(base64.b64decode(bundle).decode())
    except (ValueError, binascii.Error):
        return None
