"""Kubelets of nodes whose agent does not stream: scraped once per resolution, as metrics-server does.

One connection pool for all of them. A kubelet that does not answer, or answers nonsense, is missing from then on and
reported once until that changes; the others are not delayed by it.
"""

import asyncio
import random
from datetime import timedelta

import aiohttp

from kubetide.api.values.selectors import parse_selector
from kubetide.clock import Clock
from kubetide.errors import Unavailable
from kubetide.kube.client.credentials import Credentials
from kubetide.kube.client.http import why
from kubetide.kube.client.tls import Certificate, ClientTls
from kubetide.log import get_logger
from kubetide.metrics.cluster_view import ClusterView, ReachableNode
from kubetide.metrics.core.exposition import LARGEST_ANSWER, KubeletAnswer, parse_resource_metrics
from kubetide.metrics.core.rates import node_reading
from kubetide.metrics.core.readings import Readings
from kubetide.metrics.settings import MetricsSettings
from kubetide.telemetry import Telemetry

log = get_logger("metrics.kubelets")

SPREAD = timedelta(seconds=4)
"""The first moments of a resolution over which requests are spread."""


class KubeletScraper:
    """Asks kubelets and turns their counters into readings."""

    def __init__(
        self,
        view: ClusterView,
        readings: Readings,
        clock: Clock,
        settings: MetricsSettings,
        telemetry: Telemetry,
        rng: random.Random,
        *,
        credentials: Credentials,
        tls: ClientTls,
        identity: Certificate | None = None,
    ) -> None:
        self._view = view
        self._readings = readings
        self._clock = clock
        self._settings = settings
        self._rng = rng
        self._credentials = credentials
        self._tls = tls
        self._identity = identity
        self._selector = parse_selector(settings.node_selector) if settings.node_selector else None
        self._before: dict[str, KubeletAnswer] = {}
        self._problems: dict[str, str] = {}
        self._slots = asyncio.Semaphore(settings.scrape_concurrency)
        self._session: aiohttp.ClientSession | None = None
        self._results = telemetry.counter(
            "kubetide_metrics_kubelet_scrapes_total", "Scrapes of kubelets, by result.", ("result",)
        )
        self._seconds = telemetry.histogram(
            "kubetide_metrics_kubelet_scrape_seconds", "How long kubelets take to answer."
        )

    async def scrape_all(self) -> None:
        """Scrape every node that has no stream of its own, once."""
        nodes = {node.metadata.name: node for node in self._view.nodes.store if self._is_ours(node)}
        self._before = {name: answer for name, answer in self._before.items() if name in nodes}
        self._problems = {name: problem for name, problem in self._problems.items() if name in nodes}
        spread = min(SPREAD, self._settings.metric_resolution / 4).total_seconds() if len(nodes) > 1 else 0.0
        async with asyncio.TaskGroup() as group:
            for node in nodes.values():
                group.create_task(self._scrape(node, self._rng.uniform(0, spread)))

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def problems(self) -> dict[str, str]:
        """Return why nodes are missing."""
        return dict(self._problems)

    def _is_ours(self, node: ReachableNode) -> bool:
        if self._selector is not None and not self._selector.matches(node.metadata.labels):
            return False
        reading = self._readings.node(node.metadata.name, now=self._clock.now())
        return reading is None or reading.source != "agent"

    async def _scrape(self, node: ReachableNode, delay: float) -> None:
        name = node.metadata.name
        await asyncio.sleep(delay)
        try:
            async with self._slots:
                answer = parse_resource_metrics(await self._ask(node))
        except Unavailable as error:
            self._results.labels("failed").inc()
            self._failed(name, str(error))
            return
        self._results.labels("succeeded").inc()
        reading = node_reading(name, self._before.get(name), answer, resolution=self._settings.metric_resolution)
        self._before[name] = answer
        if answer.refused:
            self._failed(name, f"{answer.refused} lines have values that cannot be")
        elif self._problems.pop(name, None) is not None:
            log.info("kubelet answers again", node=name)
        if reading is not None:
            self._readings.take(reading, now=self._clock.now())

    def _failed(self, node: str, problem: str) -> None:
        if self._problems.get(node) != problem:
            self._problems[node] = problem
            log.warning("kubelet not scraped", node=node, error=problem)

    async def _ask(self, node: ReachableNode) -> str:
        settings = self._settings
        address = node.address(settings.kubelet_preferred_address_types)
        if not address:
            raise Unavailable(f"the node has no address of {', '.join(settings.kubelet_preferred_address_types)}")
        port = node.port if settings.kubelet_use_node_status_port else settings.kubelet_port
        url = f"https://{f'[{address}]' if ':' in address else address}:{port}/metrics/resource"
        presented = await self._credentials.present()
        started = self._clock.monotonic()
        try:
            async with (
                asyncio.timeout(settings.kubelet_request_timeout.total_seconds()),
                self._connected().get(
                    url,
                    headers=[] if self._identity is not None else list(presented.headers),
                    ssl=self._tls.context(self._identity or presented.certificate),
                    allow_redirects=False,
                ) as response,
            ):
                body = await response.content.read(LARGEST_ANSWER + 1)
                while len(body) <= LARGEST_ANSWER and (more := await response.content.read(LARGEST_ANSWER + 1)):
                    body += more
                status = response.status
        except TimeoutError as error:
            waited = settings.kubelet_request_timeout.total_seconds()
            raise Unavailable(f"{url} does not answer within {waited:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"{url} cannot be asked: {why(error)}") from error
        self._seconds.observe(self._clock.monotonic() - started)
        if status != 200:
            raise Unavailable(f"{url} answers {status}: {body[:200].decode(errors='replace').strip()}")
        if len(body) > LARGEST_ANSWER:
            raise Unavailable(f"{url} answers with more than {LARGEST_ANSWER} bytes")
        return body.decode(errors="replace")

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        return self._session
