"""Custom and external metrics from Prometheus queries, as the rules of a ConfigMap declare them.

Which metrics exist is asked every `--metrics-relist-interval`. Equal queries are asked once per `--prometheus-cache`
and by one caller at a time; so many run at once and no more, each has a time limit, and an answer has a largest size.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from kubetide.api.objects.metrics_answers import number_text
from kubetide.api.values.codec import decode_raw
from kubetide.api.values.promql import selector_matchers
from kubetide.api.values.selectors import Selector, parse_selector
from kubetide.clock import Clock
from kubetide.errors import InvalidInput, KubetideError, Unavailable
from kubetide.kube.client.http import why
from kubetide.kube.client.tls import ClientTls, Pem, ServerTrust
from kubetide.log import get_logger
from kubetide.metrics.answer_cache import AnswerCache
from kubetide.metrics.cluster_view import ClusterView
from kubetide.metrics.core.adapter_rules import Catalog, Rules, Source, catalog, external_query, object_query
from kubetide.metrics.core.backends import MOST_VALUES, bounded_labels
from kubetide.metrics.core.requests import CUSTOM, EXTERNAL, Question
from kubetide.metrics.core.statuses import bad_request
from kubetide.metrics.settings import MetricsSettings
from kubetide.metrics.value_sources import chosen_pods, described

Raw = dict[str, Any]

log = get_logger("metrics.prometheus")

LARGEST_ANSWER = 16 * 1024 * 1024
_KINDS = {
    "pods": ("Pod", "/v1"),
    "nodes": ("Node", "/v1"),
    "namespaces": ("Namespace", "/v1"),
    "services": ("Service", "/v1"),
}


class PrometheusSource:
    """Asks Prometheus what rules say."""

    name = "prometheus"

    def __init__(self, view: ClusterView, clock: Clock, settings: MetricsSettings, rules: Callable[[], Rules]) -> None:
        self._view = view
        self._clock = clock
        self._settings = settings
        self._rules = rules
        self._address = settings.prometheus_url.rstrip("/")
        ca = settings.prometheus_ca_file
        self._tls = ClientTls(ServerTrust(ca=Pem(path=Path(ca)) if ca else Pem()))
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(settings.prometheus_concurrency)
        self._queries: AnswerCache[list[tuple[Mapping[str, str], float, float]]] = AnswerCache(
            clock, lambda _: settings.prometheus_cache, most=4096
        )
        self._catalogs: AnswerCache[Catalog] = AnswerCache(clock, lambda _: settings.metrics_relist_interval, most=4)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def names(self, group: str, via: str) -> Mapping[str, bool]:
        """Return the metrics that the series there are become."""
        known = await self._catalog()
        if group == EXTERNAL:
            return dict.fromkeys(known.external, True)
        return {
            f"{resource}/{metric}": "namespaces" in source.labels and resource != "namespaces"
            for (resource, metric), source in known.custom.items()
        }

    async def values(self, question: Question, query: Mapping[str, str], via: str) -> list[Raw] | None:
        """Return what the query of a metric answers; None for a metric that no rule makes."""
        known = await self._catalog()
        try:
            if question.group == CUSTOM:
                custom = known.custom.get((question.resource, question.metric))
                return None if custom is None else await self._of_objects(custom, question, query)
            external = known.external.get(question.metric)
            return None if external is None else await self._external(external, question, query)
        except InvalidInput as error:
            raise bad_request(str(error)) from error

    async def _of_objects(self, source: Source, question: Question, query: Mapping[str, str]) -> list[Raw]:
        label = source.labels[question.resource]
        if question.resource == "pods":
            names = [pod.metadata.name for pod in chosen_pods(self._view, question, query)]
            if not names:
                return []
        else:
            if question.name == "*" and query.get("labelSelector"):
                raise bad_request("a label selector chooses among pods only")
            names = [] if question.name == "*" else [question.name]
        more = selector_matchers(_selector(query.get("metricLabelSelector", "")))
        expression = object_query(source, question.resource, question.namespace, names, more)
        wanted = set(names)
        kind, api_version = _KINDS.get(question.resource) or (question.resource, "")
        return [
            {
                "describedObject": described(kind, api_version, question.namespace, labels[label]),
                "metric": {"name": question.metric, "selector": None},
                "timestamp": _stamp(at),
                "value": number_text(value),
            }
            for labels, at, value in await self._query(expression)
            if label in labels and (not wanted or labels[label] in wanted)
        ]

    async def _external(self, source: Source, question: Question, query: Mapping[str, str]) -> list[Raw]:
        selector = _selector(query.get("labelSelector", ""))
        keys = [requirement.key for requirement in selector.requirements]
        expression = external_query(source, question.namespace, selector_matchers(selector), keys)
        return [
            {
                "metricName": question.metric,
                "metricLabels": bounded_labels(labels),
                "timestamp": _stamp(at),
                "value": number_text(value),
            }
            for labels, at, value in await self._query(expression)
        ]

    async def _catalog(self) -> Catalog:
        rules = self._rules()

        async def ask() -> Catalog:
            found = {}
            for wanted in {rule.series_query for rule in (*rules.custom, *rules.external)}:
                found[wanted] = await self._series(wanted)
            made = catalog(rules, found)
            for problem in made.problems:
                log.warning("not all metrics are offered", reason=problem)
            return made

        return await self._catalogs.get(id(rules), ask)

    async def _series(self, wanted: str) -> list[Mapping[str, str]]:
        since = self._clock.now() - self._settings.metrics_relist_interval
        form = {"match[]": wanted, "start": str(since.timestamp()), "limit": "10000"}
        data = await self._ask("/api/v1/series", form)
        return [one for one in data or () if isinstance(one, dict)]

    async def _query(self, expression: str) -> list[tuple[Mapping[str, str], float, float]]:
        return await self._queries.get(expression, lambda: self._vector(expression))

    async def _vector(self, expression: str) -> list[tuple[Mapping[str, str], float, float]]:
        data = await self._ask("/api/v1/query", {"query": expression})
        found = []
        for one in (data or {}).get("result") or ():
            if (data or {}).get("resultType") == "scalar":
                break
            at, text = (one.get("value") or (0, "NaN"))[:2]
            value = float(text)
            if math.isfinite(value) and abs(value) < 2**60:
                found.append((one.get("metric") or {}, float(at), value))
        if len(found) > MOST_VALUES:
            raise Unavailable(f"the query has {len(found)} values, more than {MOST_VALUES}")
        return found

    async def _ask(self, path: str, form: Mapping[str, str]) -> Any:
        timeout = aiohttp.ClientTimeout(total=self._settings.prometheus_timeout.total_seconds())
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            async with (
                self._slots,
                self._session.post(
                    self._address + path,
                    data=dict(form),
                    timeout=timeout,
                    headers=await self._headers(),
                    ssl=self._tls.context(None) if self._address.startswith("https://") else True,
                ) as response,
            ):
                body = b""
                async for chunk in response.content.iter_chunked(256 * 1024):
                    body += chunk
                    if len(body) > LARGEST_ANSWER:
                        raise Unavailable(f"Prometheus answers with more than {LARGEST_ANSWER} bytes")
        except TimeoutError as error:
            raise Unavailable(f"Prometheus does not answer within {timeout.total:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"Prometheus cannot be asked: {why(error)}") from error
        answer = decode_raw(body, what=f"Prometheus {path}")
        if not isinstance(answer, dict) or answer.get("status") != "success":
            reason = answer.get("error") if isinstance(answer, dict) else ""
            raise Unavailable(f"Prometheus answers {response.status}: {reason}")
        return answer.get("data")

    async def _headers(self) -> dict[str, str]:
        path = self._settings.prometheus_token_file
        if not path:
            return {}
        try:
            return {"Authorization": f"Bearer {(await asyncio.to_thread(Path(path).read_text)).strip()}"}
        except OSError as error:
            raise Unavailable(f"cannot read {path}: {error.strerror}") from error


def _selector(text: str) -> Selector:
    try:
        return parse_selector(text)
    except KubetideError as error:
        raise bad_request(str(error)) from error


def _stamp(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
