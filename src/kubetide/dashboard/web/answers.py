"""What each page shows: the read model of the page, which is also its JSON, and the template that shows it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import yaml
from aiohttp import web

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.resources import CPU, MEMORY
from kubetide.charts import Chart
from kubetide.dashboard.core import pictures
from kubetide.dashboard.core.health import health, latency_of
from kubetide.dashboard.core.history import Series, joined
from kubetide.dashboard.core.listing import window
from kubetide.dashboard.core.model import Workload
from kubetide.dashboard.core.nodes import evictions, node_rows
from kubetide.dashboard.core.overview import overview
from kubetide.dashboard.core.throttling import told_by_agents
from kubetide.dashboard.core.what_if import Numbers, what_if
from kubetide.dashboard.core.workload import Explained, WorkloadPage, scalings, sized_workload, workload_page
from kubetide.dashboard.web.components import Components, Told, UsageSource
from kubetide.dashboard.web.query import RANGES, listing, time_range, tried
from kubetide.dashboard.web.throttling import ask_throttled
from kubetide.dashboard.web.visitors import Session
from kubetide.dashboard.web.watching import Look
from kubetide.errors import KubetideError
from kubetide.recommend.core.money import Price, Prices
from kubetide.recommend.core.plots import charts
from kubetide.recommend.core.rows import rows as size
from kubetide.recommend.core.workloads import Usage, key_of
from kubetide.verdicts.core.view import WorkloadKey

RECENT = 14
"""Changes that the overview shows."""
_AUDIT = 50


class Unknown(KubetideError):
    """There is no such page: the object is not in the cluster, or may not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer."""

    title: str
    here: str
    """Which part of the navigation it belongs to."""
    template: str
    model: Any
    """What the JSON shows."""
    values: Mapping[str, Any]
    parts: Mapping[str, str] = field(default_factory=dict)
    """Templates of parts that can be asked for alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Makes pages for whoever is looking."""

    components: Components
    usage_source: UsageSource | None = None
    price: Price | None = None

    async def overview(self, session: Session, request: web.Request) -> Page:
        look = await session.watch.current()
        statuses = await self.components.statuses(session.watch.client, session.context)
        nodes = node_rows(look.view, statuses={str(each.get("node")): each for each in statuses})
        throttled = told_by_agents(nodes) or await session.throttled.get(
            lambda: ask_throttled(session, look, self.usage_source)
        )
        model = overview(look.view, look.rows, nodes, look.findings, price=self.price, throttled=throttled)
        chosen, seconds = time_range(request)
        log = list(session.watch.log)
        fleet, problem = await self._fleet(session, look, seconds)
        drawn: list[Chart] = []
        if fleet is not None and fleet.times.size > 1:
            drawn = [pictures.fleet_chart(resource, fleet, log) for resource in (CPU, MEMORY)]
        return Page(
            title="Overview",
            here="overview",
            template="overview.html",
            model={
                "at": look.view.now,
                "overview": model,
                "changes": log[-RECENT:],
                "history": None if fleet is None else fleet.columns(),
            },
            values={
                "look": look,
                "page": model,
                "charts": drawn,
                "range": chosen,
                "ranges": RANGES,
                "log": list(reversed(log[-RECENT:])),
                "priced": self.price is not None,
                "history_problem": problem,
            },
        )

    async def workloads(self, session: Session, request: web.Request) -> Page:
        look = await session.watch.current()
        query = listing(request)
        found = window(look.rows, query)
        return Page(
            title="Workloads",
            here="workloads",
            template="workloads.html",
            model={"at": look.view.now, "workloads": found},
            values={"look": look, "page": found, "query_": query},
            parts={"rows": "_rows.html"},
        )

    async def workload(self, session: Session, request: web.Request) -> Page:
        look, key, row = await _found(session, request)
        client, context = session.watch.client, session.context
        namespace = key[1].namespace
        scalers = [(kind, name) for kind, name in (("hpa", row.hpa), ("vpa", row.vpa)) if name]
        kinds = {"hpa": "HorizontalPodAutoscaler", "vpa": "VerticalPodAutoscaler"}
        async with asyncio.TaskGroup() as group:
            told = {
                kind: group.create_task(
                    self.components.explain(client, context, kind, ObjectKey(namespace, name)), name="dashboard/explain"
                )
                for kind, name in scalers
            }
            events = group.create_task(
                self.components.events(
                    client, [key, *((kinds[kind], ObjectKey(namespace, name)) for kind, name in scalers)]
                ),
                name="dashboard/events",
            )
            usage = group.create_task(self._usage(session, look, key), name="dashboard/usage")
        answers = {kind: task.result() for kind, task in told.items()}
        model = workload_page(
            look.view,
            row,
            key,
            log=list(session.watch.log),
            traces={kind: each.trace for kind, each in answers.items()},
            explained=[
                Explained(kind=kind, name=name, lines=answers[kind].lines, unknown=answers[kind].unknown)
                for kind, name in scalers
            ],
            events=[{str(name): str(value) for name, value in each.items()} for each in events.result()],
        )
        series, problem = usage.result()
        chosen, seconds = time_range(request)
        counts, drawn = await asyncio.to_thread(_drawn, session, look, key, model, series, answers, seconds)
        return Page(
            title=row.key,
            here="workloads",
            template="workload.html",
            model={"at": look.view.now, "workload": model},
            values={
                "look": look,
                "page": model,
                "row": row,
                "replicas": counts,
                "charts": drawn,
                "range": chosen,
                "ranges": RANGES,
                "usage_problem": problem,
                "numbers": _numbers(answers.get("vpa"), look, row),
            },
        )

    async def what_if(self, session: Session, request: web.Request) -> Page:
        look, key, row = await _found(session, request)
        numbers = tried(request)
        series, problem = await self._usage(session, look, key)
        prices = None if self.price is None else Prices(default=self.price)
        answer = await asyncio.to_thread(
            what_if,
            sized_workload(look.view, key),
            series,
            numbers,
            bounds=row.bounds or (1, 200),
            prices=prices,
        )
        patch = "" if answer.patch is None else yaml.safe_dump(dict(answer.patch), sort_keys=False)
        model = {"numbers": numbers, "rows": answer.rows, "counts": answer.counts, "patch": answer.patch}
        values = {"answer": answer, "patch": patch, "problem_text": problem, "row": row, "look": look}
        return Page(title=row.key, here="workloads", template="_what_if.html", model=model, values=values)

    async def nodes(self, session: Session, request: web.Request) -> Page:
        look = await session.watch.current()
        statuses = await self.components.statuses(session.watch.client, session.context)
        rows = node_rows(look.view, statuses={str(each.get("node")): each for each in statuses})
        return Page(
            title="Nodes",
            here="nodes",
            template="nodes.html",
            model={"at": look.view.now, "nodes": rows},
            values={"look": look, "nodes": rows},
        )

    async def node(self, session: Session, request: web.Request) -> Page:
        look = await session.watch.current()
        name, client = request.match_info["name"], session.watch.client
        if all(node.name != name for node in look.nodes):
            raise Unknown(f"there is no node {name}")
        key = ObjectKey("", name)
        async with asyncio.TaskGroup() as group:
            told = group.create_task(self.components.explain(client, session.context, "node", key), name="node")
            audit = group.create_task(self.components.audit(client, session.context, name), name="audit")
            status = group.create_task(self.components.status(client, session.context, name), name="status")
            events = group.create_task(self.components.events(client, [("Node", key)]), name="events")
        reported = status.result()
        rows = node_rows(look.view, {name: told.result().trace}, {name: reported} if reported else {})
        row = next(node for node in rows if node.name == name)
        entries, unknown = audit.result()
        model = {
            "at": look.view.now,
            "node": row,
            "pods": reported.get("pods") or [],
            "evictions": evictions(entries),
            "audit": entries[:_AUDIT],
            "events": list(reversed(events.result())),
        }
        return Page(
            title=name,
            here="nodes",
            template="node.html",
            model=model,
            values={
                "look": look,
                "node": row,
                **model,
                "audit_unknown": unknown,
                "told": told.result(),
                "lines": told.result().lines,
            },
        )

    async def health(self, session: Session, request: web.Request) -> Page:
        look = await session.watch.current()
        client = session.watch.client
        leases, unknown = None, ""
        try:
            leases = await self.components.leases(client)
        except KubetideError as error:
            unknown = " ".join(str(error).split())
        requests = session.watch.requests
        model = health(
            look.view,
            leases,
            leases_unknown=unknown,
            certificates=await self.components.certificates(client),
            permissions=session.permissions,
            latency=latency_of(list(requests.seconds), failed=requests.failed, reading=look.seconds),
            processes=await self.components.processes(client, session.context),
        )
        return Page(
            title="Health",
            here="health",
            template="health.html",
            model={"at": look.view.now, "health": model},
            values={"look": look, "page": model, "unreadable": look.view.unreadable},
        )

    async def _fleet(self, session: Session, look: Look, seconds: float | None) -> tuple[Series | None, str]:
        """Return what all workloads used: what was seen here, after what Prometheus knows of the time before."""
        seen, past, problem = session.watch.history.fleet(), None, ""
        # Who may not list pods sees no usage of them either.
        namespaces = {pod.metadata.namespace for pod in look.view.pods}
        if self.usage_source is not None and namespaces:
            try:
                past = await self.usage_source.fleet(namespaces, seconds)
            except KubetideError as error:
                problem = f"Prometheus does not answer ({error}); what the dashboard saw itself is shown"
        found = joined(past, seen)
        return None if found is None else pictures.within(found, seconds), problem

    async def _usage(self, session: Session, look: Look, key: WorkloadKey) -> tuple[dict[str, Usage], str]:
        """Return usage by container: from Prometheus where there is one that answers, else what was seen here."""
        workload, problem = sized_workload(look.view, key), ""
        if self.usage_source is not None:
            try:
                found = dict(await self.usage_source.usage(session.watch.client, workload))
                if found:
                    return found, ""
                problem = "Prometheus has no usage of this workload; what the dashboard saw itself is shown"
            except KubetideError as error:
                problem = f"Prometheus does not answer ({error}); what the dashboard saw itself is shown"
        names = [one.name for one in workload.containers]
        seen = {name: session.watch.history.usage(key, name) for name in names}
        return {name: usage for name, usage in seen.items() if usage is not None}, problem


async def _found(session: Session, request: web.Request) -> tuple[Look, WorkloadKey, Workload]:
    look = await session.watch.current()
    parts = request.match_info
    key = parts["kind"], ObjectKey(parts["namespace"], parts["name"])
    for row in look.rows:
        if (row.kind, row.namespace, row.name) == (parts["kind"], parts["namespace"], parts["name"]):
            return look, key, row
    raise Unknown(f"there is no {parts['kind']} {parts['namespace']}/{parts['name']}")


def _drawn(
    session: Session,
    look: Look,
    key: WorkloadKey,
    model: WorkloadPage,
    usage: Mapping[str, Usage],
    told: Mapping[str, Told],
    seconds: float | None,
) -> tuple[Chart | None, list[Chart]]:
    """Return the chart of its replicas, and those of its containers."""
    counts, drawn = None, list[Chart]()
    series = session.watch.history.of(key)
    if series is not None and series.times.size > 1:
        part = pictures.within(series, seconds)
        decided = {at: why for at, why in scalings(model.decisions, model.log).items() if at >= part.times[0]}
        counts = pictures.replica_chart(part, model.row.bounds, decided)
    workload = sized_workload(look.view, key, utilization=_targets(_hpa_of(look, model.row)))
    rows = size([workload], {key_of(workload, name): one for name, one in usage.items()})
    sized = {row.container: row for row in rows}
    for container in model.containers:
        if (used := usage.get(container.name)) is None:
            continue
        shown = _last(used, seconds)
        pair = charts(shown, sized[container.name], targets=workload.utilization)
        times = shown.start + shown.step * np.array([0, len(shown.cpu)], dtype=np.float64)
        for resource, chart, scale in ((CPU, pair[0], 1000.0), (MEMORY, pair[1], 1.0)):
            bounds = {
                f"{label} bound": value / scale
                for label, sizes in (("lower", container.lower), ("upper", container.upper))
                if (value := sizes.cpu_millis if resource == CPU else sizes.memory_bytes) is not None
            }
            drawn.append(pictures.with_bounds(chart, times, bounds))
    for container_trace in (told["vpa"].trace.get("containers") or ()) if "vpa" in told else ():
        for resource, trace in (container_trace.get("resources") or {}).items():
            found = pictures.histogram_chart(str(container_trace.get("name")), resource, trace)
            if found is not None:
                drawn.append(found)
    return counts, drawn


def _last(usage: Usage, seconds: float | None) -> Usage:
    lines = len(usage.cpu) if seconds is None else max(2, int(seconds / usage.step))
    cut = max(0, len(usage.cpu) - lines)
    return Usage(
        usage.start + cut * usage.step,
        usage.step,
        usage.pods,
        usage.cpu[cut:],
        usage.memory[cut:],
        tuple(kill for kill in usage.ooms if kill.at_seconds >= usage.start + cut * usage.step),
        source=usage.source,
    )


def _targets(hpa: HorizontalPodAutoscaler | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for metric in (hpa.spec.metrics or ()) if hpa is not None else ():
        source = metric.resource or metric.container_resource
        if source is not None and source.target.average_utilization:
            found[source.name] = source.target.average_utilization
    return found


def _numbers(told: Told | None, look: Look, row: Workload) -> Numbers:
    """Return the numbers in force: those of the recommender's trace, and the target of the autoscaler."""
    percentile, margin = 0.9, 0.15
    for container in (told.trace.get("containers") or ()) if told is not None else ():
        cpu = (container.get("resources") or {}).get(CPU) or {}
        percentile = float(((cpu.get("bounds") or {}).get("target") or {}).get("percentile", percentile))
        margin = float(cpu.get("margin", margin))
        break
    return Numbers(percentile=percentile, margin=margin, target=_targets(_hpa_of(look, row)).get(CPU))


def _hpa_of(look: Look, row: Workload) -> HorizontalPodAutoscaler | None:
    named = (one for one in look.view.hpas if (one.metadata.namespace, one.metadata.name) == (row.namespace, row.hpa))
    return next(named, None)
