"""`kubetide explain`: what is wrong with an autoscaler, a workload, a pod or a node, the fix, and why it is its size.

The verdict is judged from the cluster, the numbers come from the running controller (`explain.numbers`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import click
from click.shell_completion import CompletionItem

from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.values.codec import encode
from kubetide.cli.explain.answer import listing, render_answer, with_verdict
from kubetide.cli.explain.history import events_about, since
from kubetide.cli.explain.numbers import KINDS, explained
from kubetide.cli.explain.workload import workload_trace
from kubetide.cli.main import Invocation
from kubetide.cli.name_completion import complete_objects
from kubetide.cli.places import client_of
from kubetide.clock import SystemClock
from kubetide.durations import parse_duration
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.client.kubeconfig import load as access
from kubetide.verdicts.cluster_reader import one_line, read_cluster
from kubetide.verdicts.core.finding import found as found_verdict
from kubetide.verdicts.core.judge import about, parts_of, rows
from kubetide.verdicts.core.verdict import Finding, Severity
from kubetide.verdicts.core.view import ClusterView

ALIASES = {
    "deployment": "deploy",
    "deployments": "deploy",
    "statefulsets": "statefulset",
    "sts": "statefulset",
    "hpas": "hpa",
    "vpas": "vpa",
    "pods": "pod",
    "po": "pod",
    "plans": "plan",
    "workloadplan": "plan",
    "workloadplans": "plan",
    "wplan": "plan",
    "nodes": "node",
    "no": "node",
}
"""How kubectl lets people write the kinds."""

WATCH_SECONDS = 2.0
_NEEDS_NODES = frozenset({"pod", "node", "deploy", "statefulset"})


class _KindName(click.ParamType[Any]):
    """A kind as kubectl lets people write it."""

    name = "kind"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = ALIASES.get(str(value).lower(), str(value).lower())
        if found not in KINDS:
            self.fail(f"{value!r} is not one of {', '.join(sorted(KINDS))}", param, ctx)
        return found

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(kind) for kind in sorted(KINDS) if kind.startswith(incomplete)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be explained, and whom to ask."""

    invocation: Invocation
    kind: str
    key: ObjectKey
    address: str | None
    token: str | None
    recompute: bool
    since: timedelta | None


@click.command("explain", short_help="What is wrong with an object, the fix, and why it is the size it is.")
@click.argument("kind", type=_KindName(), required=False)
@click.argument("name", metavar="[[NAMESPACE/]NAME]", required=False, shell_complete=complete_objects)
@click.option("-A", "--all-namespaces", is_flag=True, help="List what has a problem, in all namespaces.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--since", default="", help="Only the history of this time, such as 1h.")
@click.option("-w", "--watch", is_flag=True, help="Explain again whenever something changes.")
@click.option("--address", help="Where the controller serves /explain, such as 127.0.0.1:8941.")
@click.option("--token", envvar="KUBETIDE_PROCESS_EXPLAIN_TOKEN", help="Bearer token for /explain.")
@click.option("--recompute", is_flag=True, help="Do not ask a controller; compute from the cluster.")
@click.pass_obj
def command(
    invocation: Invocation,
    kind: str | None,
    name: str | None,
    all_namespaces: bool,
    output: str,
    since: str,
    watch: bool,
    address: str | None,
    token: str | None,
    recompute: bool,
) -> None:
    """Explain an object: the verdict and its fix, the numbers behind it, its history.

    KIND is hpa, vpa, plan, pod, node, deploy or statefulset. Without a name, or with -A, everything that has a problem
    is listed, of KIND or of all kinds.
    """
    span = _span(since)
    if name is None or all_namespaces:
        if name is not None:
            raise InvalidInput("a name and -A exclude each other: -A lists what has a problem", field="-A")
        within = "" if all_namespaces else invocation.namespace or _context_namespace(invocation)
        produce = partial(_list, invocation, kind, within, output)
    else:
        assert kind is not None, "click fills arguments in order"
        key = ObjectKey.parse(name)
        if KINDS[kind].namespaced and not key.namespace:
            key = ObjectKey(invocation.namespace or _context_namespace(invocation), key.name)
        question = Question(
            invocation=invocation, kind=kind, key=key, address=address, token=token, recompute=recompute, since=span
        )
        produce = partial(_text, question, output)
    asyncio.run(_show(produce, again=watch))


def _span(text: str) -> timedelta | None:
    try:
        return parse_duration(text) if text else None
    except InvalidInput as error:
        raise InvalidInput(error.message, field="--since") from error


async def _show(produce: Callable[[], Awaitable[tuple[str, str]]], *, again: bool) -> None:
    """Print an explanation; with `again`, print it anew whenever it has changed, until interrupted."""
    shown = None
    while True:
        warning, text = await produce()
        if text != shown:
            if again:
                click.clear()
            if warning:
                # Before the answer and in either form: numbers without history must not pass for the controller's own.
                click.secho(warning, fg="yellow", bold=True, err=True)
            click.echo(text)
            shown = text
        if not again:
            return
        await asyncio.sleep(WATCH_SECONDS)


async def _list(invocation: Invocation, kind: str | None, namespace: str, output: str) -> tuple[str, str]:
    """Return no warning, and everything that has a problem."""
    client = client_of(invocation)
    try:
        view = await read_cluster(client, SystemClock(), namespace=namespace)
    finally:
        await client.close()
    found = [
        finding
        for finding in rows(view)
        if (finding.severity.is_problem or finding.severity is Severity.UNKNOWN) and kind in (None, finding.kind)
    ]
    if output == "json":
        return "", encode([finding.row() for finding in found]).decode()
    where = f"in namespace {namespace}" if namespace else "in any namespace"
    return "", listing(found) if found else f"OK: nothing has a problem {where}"


async def _text(question: Question, output: str) -> tuple[str, str]:
    """Return a warning where the numbers are recomputed, and the explanation of one object."""
    trace, findings = await _answer(question)
    warning = f"RECOMPUTED: {trace['warning']}" if trace.get("recomputed") else ""
    if output == "json":
        return warning, encode(with_verdict(trace, findings)).decode()
    return warning, render_answer(KINDS[question.kind].renderer, trace, findings)


async def _answer(question: Question) -> tuple[dict[str, Any], list[Finding]]:
    """Return the numbers and the findings; where the cluster cannot be read, that is the finding."""
    kind, key = question.kind, question.key
    view, events, problem = await _read(question)
    workload = KINDS[kind].resource.kind
    trace: dict[str, Any]
    if view is not None and kind in ("deploy", "statefulset"):
        if (workload, key) not in view.workloads and str(KINDS[kind].resource) not in view.unreadable:
            raise KubetideError(f"there is no {kind} {key.name} in namespace {key.namespace}")
        trace = {"unexplained": f"{KINDS[kind].resource} cannot be read"}
        if (workload, key) in view.workloads:
            trace = workload_trace(view, workload, key)
    elif view is None and kind in ("deploy", "statefulset"):
        raise KubetideError(problem)
    else:
        trace = await _numbers(question, view)
    now = view.now if view is not None else SystemClock().now()
    if trace.get("history"):
        trace["history"] = since(trace["history"], question.since, now=now)
    trace["events"] = since(events, question.since, now=now)
    if view is None:
        return trace, [found_verdict("server-unreachable", kind, key, message=problem)]
    if kind == "plan":
        # What can be wrong with a plan is wrong with its autoscalers, or in its own message.
        return trace, [*about(view, "hpa", key), *about(view, "vpa", key)]
    findings = about(view, kind, key, trace)
    if not findings:
        # A controller may know what the cluster does not show: it is of another cluster, or the object has just gone.
        values = {"resource": KINDS[kind].resource, "message": "there is no such object in this cluster"}
        findings = [found_verdict("unreadable", kind, key, **values)]
    return trace, findings


async def _numbers(question: Question, view: ClusterView | None) -> dict[str, Any]:
    """Return the trace of the object; where there is none although the object is there, why."""
    try:
        return await explained(
            question.invocation,
            question.kind,
            KINDS[question.kind],
            question.key,
            question.address,
            question.token,
            recompute=question.recompute,
        )
    except KubetideError as error:
        if view is None or question.address or question.kind == "plan" or not about(view, question.kind, question.key):
            raise
        return {"unexplained": str(error)}


async def _read(question: Question) -> tuple[ClusterView | None, list[dict[str, Any]], str]:
    """Read what the verdict is judged by, and the events; a controller may be asked where no cluster answers."""
    client = None
    try:
        client = client_of(question.invocation)
        whole = question.kind in _NEEDS_NODES
        view = await read_cluster(client, SystemClock(), namespace=question.key.namespace, whole=whole)
        workload = view.workloads.get((KINDS[question.kind].resource.kind, question.key))
        named = [(KINDS[question.kind].resource.kind, question.key)]
        if workload is not None:
            parts = parts_of(view, workload)
            named += [("HorizontalPodAutoscaler", key_of(hpa)) for hpa in parts.hpas]
            named += [("VerticalPodAutoscaler", key_of(vpa)) for vpa in parts.vpas]
        events = await events_about(client, named)
    except KubetideError as error:
        return None, [], one_line(error)
    finally:
        if client is not None:
            await client.close()
    return view, events, ""


def _context_namespace(invocation: Invocation) -> str:
    """Return the namespace of the chosen context; a running controller can be asked without any."""
    try:
        return access(clock=SystemClock(), path=invocation.kubeconfig, context=invocation.context or "").namespace
    except KubetideError:
        return "default"
