"""The agent of a node that only looks: which file would change from what to what, by which strategy, and why.

The strategies run on what the machine shows. Between the executor and the machine stands a host whose writes do
nothing; the executor tells its auditor what it wrote, and here the auditor is the report. Evictions and reports go to
the API server through a transport that holds writes back. There are no ways in for container runtimes, no history on
disk and no audit log, because a second agent may be at work on the same node.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from kubetide.api.values.changes import FieldChange
from kubetide.cli.dry_run import Intent, Report
from kubetide.kube.client.client import Client
from kubetide.kube.client.dry_run import DryRunTransport
from kubetide.kube.control.manager import Component
from kubetide.node.agent import NodeAgent
from kubetide.node.core.plan import Write
from kubetide.node.enforcement import make_modules
from kubetide.node.hook_reconciler import HookReconciler
from kubetide.node.host.protocol import Host
from kubetide.node.host.worker import Worker
from kubetide.node.settings import NodeSettings
from kubetide.node.strategy_runner import QosController

SAMPLES = 3
"""Samples of usage that a first decision should rest on."""
_LOOK_SECONDS = 0.2


class ReadOnlyHost:
    """A host whose files can be read; writing one has no effect."""

    def __init__(self, inner: Host) -> None:
        self._inner = inner

    def read(self, path: str) -> str:
        """Return the whole text of a file."""
        return self._inner.read(path)

    def write(self, path: str, value: str) -> None:
        """Do nothing."""

    def list_dirs(self, path: str) -> list[str]:
        """Return the names of the directories directly below `path`."""
        return self._inner.list_dirs(path)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        return self._inner.exists(path)

    def sweep(self) -> None:
        """Close files that are gone, where the host keeps any open."""
        sweep = getattr(self._inner, "sweep", None)
        if sweep is not None:
            sweep()


class DryRunAgent:
    """What takes the place of the parts of an agent that write. It is the auditor of the executor."""

    def __init__(self, report: Report, kernel: Worker) -> None:
        self._report = report
        self._kernel = kernel
        self._agent: NodeAgent | None = None
        self._strategies: QosController | None = None
        self._hooks: HookReconciler | None = None

    def client(self, client: Client) -> Client:
        """Return a client that writes nothing."""
        return client.over(DryRunTransport(client.transport, self._report.holder("node")))

    def settings(self, settings: NodeSettings) -> NodeSettings:
        """Return the settings without what an agent keeps or publishes for others."""
        gates = ",".join(part for part in (settings.feature_gates, "AuditEvents=false") if part)
        return msgspec.structs.replace(
            settings,
            feature_gates=gates,
            enable_node_metric_report=False,
            metric_history_path="",
            prediction_checkpoint_filepath="",
        )

    def host(self, host: Host) -> Host:
        """Return the machine without its writes."""
        return ReadOnlyHost(host)

    def modules(self, agent: NodeAgent, **more: Any) -> Sequence[Component]:
        """Return the strategies and hooks of an agent, without sockets for container runtimes."""
        made = list(make_modules(agent, sockets=False, **more))
        self._agent = agent
        self._strategies = next(one for one in made if isinstance(one, QosController))
        self._hooks = next(one for one in made if isinstance(one, HookReconciler))
        return made

    def record_write(self, write: Write, path: str, previous: str, value: str) -> None:
        """Hear of a write that did not happen; called by the worker that owns the host."""
        by = (self._agent.executor.by if self._agent is not None else "") or "runtime-hooks"
        why = f"{by}: {write.audit_reason}" + (f", {write.message}" if write.message else "")
        subject = write.subject
        about = "/".join(part for part in (subject.namespace, subject.name, subject.container) if part)
        change = FieldChange("", previous, value)
        intent = Intent(
            component="node", action="write", object=path, changes=(change,), why=f"{why}; {about}" if about else why
        )
        self._kernel.hand_back(self._report.intend, intent)

    def stop(self) -> None:
        """Report nothing more: what strategies take back at the end would not have been there."""
        self._report.closed = True

    async def decided(self, agent: NodeAgent) -> None:
        """Wait until every strategy has decided on a few samples, and the hooks made a pass."""
        while not agent.ready():  # noqa: ASYNC110 - readiness comes from many parts
            await asyncio.sleep(_LOOK_SECONDS)
        since = agent.clock.now() + timedelta(seconds=SAMPLES * agent.collect_interval)
        while not self._have_decided(since.isoformat()):  # noqa: ASYNC110 - every strategy has a loop of its own
            await asyncio.sleep(_LOOK_SECONDS)
        if not self._report.intents():
            self._report.echo_note("node", "would change nothing")

    def _have_decided(self, since: str) -> bool:
        strategies, hooks = self._strategies, self._hooks
        if strategies is None or hooks is None or not hooks.passes:
            return False
        failing = (strategies.explain("node", self._agent.node_name if self._agent else "") or {}).get("failing", {})
        latest = {name: str(decision["at"]) for name, decision in strategies.decisions.items()}
        return all(one.name in failing or latest.get(one.name, "") >= since for one in strategies.strategies)
