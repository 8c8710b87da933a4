"""The API server of a simulated cluster: the embedded one, with the metrics APIs answered from the model."""

from kubetide.embedded.cluster import EmbeddedApi
from kubetide.embedded.render import answer_raw
from kubetide.embedded.requests import Answer, Request
from kubetide.embedded.sim.metrics import SimMetrics, metrics_path
from kubetide.embedded.watching import WatchPlan

_GROUPS = ("/apis/metrics.k8s.io/", "/apis/custom.metrics.k8s.io/", "/apis/external.metrics.k8s.io/")


class SimApi(EmbeddedApi):
    """Serves metrics too, once the model is there to ask."""

    metrics: SimMetrics | None = None

    async def _handle(self, request: Request) -> Answer | WatchPlan:
        path = request.path
        wanted = request.method == "GET" and path.startswith(_GROUPS) and path.count("/") > 3
        if wanted and self.metrics is not None:
            return answer_raw(metrics_path(self.metrics, path, dict(request.query)))
        return await super()._handle(request)
