"""Past usage from Prometheus into an empty model, before the first loop.

An outage of Prometheus only delays: the slice that failed is asked again, with growing pauses, until it is answered or
`--history-deadline` has passed. What Prometheus refuses for good (a bad query, missing labels) ends the attempt with
an error that says so; the recommender then goes on without history.
"""

import asyncio
import base64
import os
import random
import ssl
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode

import aiohttp
import numpy as np

from kubetide.api.objects.meta import ObjectKey
from kubetide.clock import Clock
from kubetide.errors import InvalidInput, KubetideError, Unavailable
from kubetide.kube.pacing import Backoff
from kubetide.log import get_logger
from kubetide.stats.buckets import Ints
from kubetide.stats.instants import MICROSECOND, microseconds
from kubetide.stats.prometheus_ranges import PrometheusAnswer, Slice, slice_points, slices
from kubetide.telemetry import Telemetry
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.recommender.core.history.prometheus_queries import (
    FIRST_SLICE_POINTS,
    Series,
    cpu_query,
    history_range,
    label_query,
    memory_query,
    read_labels,
    read_series,
)
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.samples import Mask
from kubetide.vpa.recommender.core.usage.feeding import NO_BOUNDS, Refused
from kubetide.vpa.recommender.core.usage.plausible import Bounds, RefusalReason
from kubetide.vpa.recommender.settings import RecommenderSettings, prometheus_duration

log = get_logger("vpa.history")

RETRY = Backoff(base=1.0, cap=60.0, jitter=0.5)
NOT_COMPRESSED = {"Accept-Encoding": "identity"}
"""Measured: packing the numbers costs Prometheus four times the CPU of finding them."""
DURATION_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Prometheus(Protocol):
    """Answers queries; an error answer raises PrometheusAnswer, silence raises Unavailable."""

    async def post(self, path: str, form: Mapping[str, str]) -> bytes:
        """Send a form and return the body of the answer."""
        ...


class PrometheusHttp:
    """Prometheus over HTTP, with bearer token, basic auth, or neither."""

    def __init__(
        self,
        settings: RecommenderSettings,
        telemetry: Telemetry,
        clock: Clock,
        *,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        sign: Callable[[str, str, bytes], Mapping[str, str]] | None = None,
    ) -> None:
        """`sign` returns headers for a method, an address and a body, for services that want every request signed."""
        self._sign = sign
        self._extra = {**NOT_COMPRESSED, **(headers or {})}
        self._context = tls
        self._address = settings.prometheus_address.rstrip("/")
        self._timeout = prometheus_duration(settings.prometheus_query_timeout).total_seconds()
        self._settings = settings
        self._clock = clock
        self._requests = telemetry.counter(
            "vpa_recommender_prometheus_client_api_requests_count", "Requests to Prometheus.", ("code", "method")
        )
        self._seconds = telemetry.histogram(
            "vpa_recommender_prometheus_client_api_requests_duration_seconds",
            "Duration of requests to Prometheus.",
            ("code", "method"),
            buckets=DURATION_BUCKETS,
        )

    async def post(self, path: str, form: Mapping[str, str]) -> bytes:
        """Send a form and return the body of the answer."""
        return await self._send("POST", self._address + path, urlencode(form).encode())

    async def get(self, path: str, form: Mapping[str, str]) -> bytes:
        """Send parameters and return the body of the answer."""
        return await self._send("GET", f"{self._address}{path}?{urlencode(form)}", b"")

    async def _send(self, method: str, url: str, body: bytes) -> bytes:
        started, code = self._clock.monotonic(), "error"
        headers = {**self._headers(), **self._extra}
        if body:
            headers = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        if self._sign is not None:
            headers.update(self._sign(method, url, body))
        try:
            timeout = aiohttp.ClientTimeout(total=self._timeout)
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.request(method, url, data=body or None, ssl=self._tls()) as response,
            ):
                code = str(response.status)
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"Prometheus at {self._address} does not answer: {error}") from error
        finally:
            self._requests.labels(code, method.lower()).inc()
            self._seconds.labels(code, method.lower()).observe(self._clock.monotonic() - started)
        if code.startswith("5") or code == "429":
            raise Unavailable(f"Prometheus at {self._address} answers {code}: {answer[:200].decode(errors='replace')}")
        if code != "200":
            raise PrometheusAnswer(f"status {code}: {answer[:500].decode(errors='replace')}")
        return answer

    def _headers(self) -> dict[str, str]:
        settings = self._settings
        token = settings.prometheus_bearer_token
        if not token and settings.prometheus_bearer_token_file:
            token = _text_of(settings.prometheus_bearer_token_file)
        if token:
            return {"Authorization": f"Bearer {token}"}
        user, password = settings.username, settings.password
        if not (user and password):
            user = os.environ.get("PROMETHEUS_USERNAME", "")
            password = os.environ.get("PROMETHEUS_PASSWORD", "")
        if user and password:
            text = base64.b64encode(f"{user}:{password}".encode()).decode()
            return {"Authorization": f"Basic {text}"}
        return {}

    def _tls(self) -> ssl.SSLContext | bool:
        if self._context is not None:
            return self._context
        if not self._settings.prometheus_insecure:
            return True
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


def trusting(file: str, field: str) -> ssl.SSLContext:
    """Return what trusts the certificates of a file."""
    try:
        return ssl.create_default_context(cafile=file)
    except (ssl.SSLError, OSError) as error:
        raise InvalidInput(f"{file} has no certificates in PEM form: {error}", field=field) from error


class PrometheusHistory:
    """Fills a model with the past."""

    def __init__(
        self, prometheus: Prometheus, settings: RecommenderSettings, *, clock: Clock, rng: random.Random
    ) -> None:
        self._prometheus = prometheus
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self.refused: dict[RefusalReason, Refused] = {}

    async def load(
        self, model: Model, bounds: Bounds = NO_BOUNDS, wanted: Callable[[str], bool] = lambda namespace: True
    ) -> int:
        """Read the history of the namespaces that are wanted into the model; return the number of samples.

        Raises what ended the attempt.
        """
        now = self._clock.now()
        self.refused = {}
        start, end, step = history_range(self._settings, now.timestamp())
        form = {"query": label_query(self._settings), "time": str(end)}
        labels = read_labels(await self._ask("/api/v1/query", form), self._settings)
        total = 0
        for number, query in enumerate((cpu_query(self._settings), memory_query(self._settings))):
            at, points = start, FIRST_SLICE_POINTS
            while at <= end:
                part = next(slices(at, end, step, points))
                series = read_series(await self._ask("/api/v1/query_range", _range(query, part, step)), self._settings)
                ours = [one for one in series if wanted(one.namespace)]
                total += self._feed(model, ours, labels, bounds, is_cpu=number == 0)
                at, points = part.end + step, slice_points(len(series))
                _show_progress(number * 0.5 + 0.5 * min(1.0, (at - start) / max(1, end - start)))
        return total

    async def _ask(self, path: str, form: Mapping[str, str]) -> bytes:
        deadline = self._settings.history_deadline.total_seconds()
        started, attempt = self._clock.monotonic(), 0
        while True:
            try:
                return await self._prometheus.post(path, form)
            except Unavailable as error:
                if deadline and self._clock.monotonic() - started > deadline:
                    raise
                delay = RETRY.delay(attempt, self._rng)
                log.warning("prometheus is away", error=str(error), retry_seconds=round(delay, 1))
                attempt += 1
                await asyncio.sleep(delay)

    def _feed(
        self,
        model: Model,
        series: list[Series],
        labels: Mapping[tuple[str, str], Mapping[str, str]],
        bounds: Bounds,
        *,
        is_cpu: bool,
    ) -> int:
        now = self._clock.now()
        rows: list[Ints] = []
        for one in series:
            key = ObjectKey(one.namespace, one.pod)
            model.set_pod(key, labels.get((one.namespace, one.pod)), "Unknown", now=now)
            row = model.set_container(key, one.container, now=now)
            rows.append(np.full(one.times.size, row, dtype=np.int64))
        if not rows:
            return 0
        times = np.concatenate([one.times for one in series])
        values = np.concatenate([one.values for one in series])
        amounts = values * 1000.0 if is_cpu else values
        # Where pods of the past ran is not known, so the largest node is their bound.
        future = times > microseconds(now) + bounds.skew // MICROSECOND
        above = ~future & (amounts > bounds.largest(CPU if is_cpu else MEMORY))
        kept = ~(future | above)
        for reason, mask in ((RefusalReason.FUTURE, future), (RefusalReason.ABOVE_NODE, above)):
            self._refuse(reason, mask, series)
        whole = np.clip(amounts[kept], -1.0, 1e14).astype(np.int64)
        add = model.containers.add_cpu if is_cpu else model.containers.add_memory
        return int(add(np.concatenate(rows)[kept], times[kept], whole).sum())

    def _refuse(self, reason: RefusalReason, mask: Mask, series: list[Series]) -> None:
        count = int(mask.sum())
        if count:
            lengths = np.cumsum([one.times.size for one in series])
            first = series[int(np.searchsorted(lengths, int(mask.argmax()), side="right"))]
            self.refused.setdefault(reason, Refused(0, f"{first.namespace}/{first.pod}")).count += count


async def load_history(
    history: PrometheusHistory,
    model: Model,
    bounds: Bounds = NO_BOUNDS,
    wanted: Callable[[str], bool] = lambda namespace: True,
) -> Mapping[RefusalReason, Refused]:
    """Fill the model, or say why it stays as far as it got; return which samples were refused."""
    try:
        samples = await history.load(model, bounds, wanted)
        log.info("history loaded", samples=samples, containers=len(model.containers))
    except KubetideError as error:
        log.warning("history is not available, going on without", error=str(error))
    return history.refused


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        raise Unavailable(f"the token for Prometheus cannot be read: {error}") from error


def _range(query: str, part: Slice, step: int) -> dict[str, str]:
    return {"query": query, "start": str(part.start), "end": str(part.end), "step": str(step)}


def _show_progress(share: float) -> None:
    if not sys.stderr.isatty():
        return
    filled = int(share * 40)
    sys.stderr.write(f"\rhistory [{'█' * filled}{'·' * (40 - filled)}] {share:4.0%}{chr(10) if share >= 1 else ''}")
    sys.stderr.flush()
