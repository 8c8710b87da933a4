"""A Prometheus with constant usage, in process or over HTTP."""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from kubetide.errors import Unavailable
from kubetide.recommend.prometheus_usage import CPU_METRIC, OOM_METRIC
from kubetide.stats.prometheus_ranges import PrometheusAnswer

TOKEN = "t0k3n"
Raw = dict[str, Any]


class FakePrometheus:
    """Answers range queries with constant usage for every pod given, and keeps what was asked."""

    def __init__(
        self,
        known: Mapping[str, tuple[float, float]],
        *,
        fail: int = 0,
        namespace: str = "default",
        resting: bool = False,
        lists: Sequence[str] | None = (),
    ) -> None:
        """`lists` are pods that are listed beside those that have usage; None if it does not list any."""
        self.known, self.fail, self.namespace, self.resting = known, fail, namespace, resting
        self.lists = lists
        self.listed: list[tuple[str, Mapping[str, str]]] = []
        self.asked: list[Mapping[str, str]] = []

    async def get(self, path: str, form: Mapping[str, str]) -> bytes:
        if self.lists is None:
            raise PrometheusAnswer("status 405: Method Not Allowed")
        self.listed.append((path, form))
        return json.dumps({"status": "success", "data": [*self.known, *self.lists]}).encode()

    async def post(self, path: str, form: Mapping[str, str]) -> bytes:
        self.asked.append(form)
        if self.fail < 0:
            raise PrometheusAnswer("status 401: <html>\nUnauthorized</html>")
        if self.fail:
            self.fail -= 1
            raise Unavailable("Prometheus is away")
        query = form["query"]
        if path.endswith("/query") and self.resting and "count_over_time" not in query:
            return _answer("vector", [])
        if path.endswith("/query"):
            count = (
                [{"metric": {"namespace": self.namespace}, "value": [0, str(len(self.known))]}] if self.known else []
            )
            return _answer("vector", count)
        times = range(int(form["start"]), int(form["end"]) + 1, int(form["step"]))
        if OOM_METRIC in query or "cfs" in query:
            return _answer("matrix", [])
        chosen = re.search('pod=~"([^"]*)"', query.replace(r"\\", "\\"))
        place = 0 if CPU_METRIC in query else 1
        return _answer(
            "matrix",
            [
                {
                    "metric": {"namespace": self.namespace, "pod": pod, "container": "main"},
                    "values": [[at, str(amounts[place])] for at in times],
                }
                for pod, amounts in self.known.items()
                if chosen is None or re.fullmatch(chosen[1], pod)
            ],
        )


def _answer(kind: str, result: list[Raw]) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()


@asynccontextmanager
async def serving(known: FakePrometheus) -> AsyncIterator[str]:
    """Serve answers to whoever has the token; yield the address."""

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401, text="<html>\n<b>Unauthorized</b></html>")
        asked = request.query if request.method == "GET" else await request.post()
        form = {name: str(value) for name, value in asked.items()}
        send = known.get if request.method == "GET" else known.post
        return web.Response(body=await send(request.path, form), content_type="application/json")

    app = web.Application()
    app.router.add_post("/api/v1/{query}", answer)
    app.router.add_get("/api/v1/label/pod/values", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/")).rstrip("/")
