"""How kubetide talks to a cluster, and how several of it agree on who acts."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar

from kubetide.config import Doc, Settings


class KubeSettings(Settings, frozen=True, kw_only=True):
    """The connection to the API server."""

    section: ClassVar[str] = "kube"

    kubeconfig: Annotated[Path | None, Doc("The kubeconfig file; without one KUBECONFIG, then the pod's identity.")] = (
        None
    )
    context: Annotated[str, Doc("The context of the kubeconfig; empty for the current one.")] = ""
    qps: Annotated[
        float,
        Doc(
            "Requests a second on average; 0 leaves the pace to the server's own flow control.",
            flag="kube-api-qps",
            aliases=("rest-config-qps",),
        ),
    ] = 0.0
    burst: Annotated[
        int,
        Doc(
            "Requests at once after a pause, where a rate is set.",
            flag="kube-api-burst",
            aliases=("rest-config-burst",),
        ),
    ] = 0
    concurrency: Annotated[
        int, Doc("Requests in flight at most. More is faster and costs the server more.", minimum=1)
    ] = 64
    request_timeout: Annotated[
        timedelta, Doc("How long one request may take before it is given up and tried again.")
    ] = timedelta(seconds=60)
    body_limit: Annotated[
        int,
        Doc(
            "The longest answer accepted, in bytes. A longer one is refused without being kept, "
            "so that one list cannot take all memory.",
            minimum=1,
        ),
    ] = 256 * 1024 * 1024
    cache_check_interval: Annotated[
        timedelta,
        Doc(
            "How often each local copy is compared with the server by count and newest version, which finds what a "
            "restore of etcd leaves behind. Costs one list of a single object per copy; 0: only when there is doubt."
        ),
    ] = timedelta(minutes=5)
