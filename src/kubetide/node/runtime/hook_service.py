"""The one door to the hooks for both runtimes' ways in: NRI events and calls of a runtime proxy.

Values of a pod's own cgroup are written by the agent. Values of a container are the answer: the runtime (or the
proxy) applies them, because at that moment the container's cgroup may not exist.

A runtime is never kept waiting for the kernel: answers come from the rules in memory, and a pod's own values are handed
to the worker that owns the host. A value that could not be written there is written by the reconciler.
"""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from kubetide.api.qos.cgroups import ContainerIdError, hook_container_id
from kubetide.clock import Clock, SystemClock
from kubetide.errors import InvalidInput, KubetideError
from kubetide.log import get_logger
from kubetide.node.core.hooks.batch_resource import batch_from_annotation
from kubetide.node.core.hooks.context import BatchResources, ContainerRequest, OriginResources, PodRequest
from kubetide.node.core.hooks.requests import pod_writes
from kubetide.node.core.hooks.rules import Plugins
from kubetide.node.core.hooks.stages import Stage, StageResult
from kubetide.node.core.layout import Layout
from kubetide.node.core.outcomes import Applies
from kubetide.node.core.plan import Batch
from kubetide.node.host.worker import Inline, Worker
from kubetide.node.telemetry import MILLISECONDS
from kubetide.telemetry import Telemetry

log = get_logger("node.hooks")


class HookError(KubetideError):
    """A hook failed and its policy is to fail the runtime's call."""


class PodGroups(Protocol):
    """The resctrl groups of single pods; what changes them runs on the worker that owns the host."""

    groups: frozenset[str]

    def add_pod(self, pod: PodRequest) -> None:
        """Make the group of a pod that asks for one."""
        ...

    def remove_pod(self, uid: str) -> None:
        """Remove the group of a pod."""
        ...


class HookService:
    """Runs stages for requests that come from a runtime."""

    def __init__(
        self,
        plugins: Plugins,
        executor: Applies,
        layout: Layout,
        *,
        default_runtime: str = "containerd",
        kernel: Worker | None = None,
        resctrl: PodGroups | None = None,
        telemetry: Telemetry | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.plugins = plugins
        self._resctrl = resctrl
        self._clock = clock or SystemClock()
        self._millis = (telemetry or Telemetry()).durations(
            "koordlet_runtime_hook_invoked_duration_milliseconds",
            "How long the hooks of a stage take.",
            ("stage", "status"),
            MILLISECONDS,
        )
        self._executor = executor
        self._layout = layout
        self._default_runtime = default_runtime
        self._kernel = kernel or Inline()

    def pod(
        self,
        *,
        namespace: str,
        name: str,
        uid: str,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        cgroup_parent: str,
    ) -> PodRequest:
        """Return the request of a pod as a runtime describes it."""
        batch: Mapping[str, BatchResources] | None
        try:
            batch = batch_from_annotation(annotations)
        except InvalidInput as error:
            log.warning("extended resources cannot be read", pod=f"{namespace}/{name}", error=str(error))
            batch = None
        parent = self._layout.paths.full_parent(cgroup_parent).strip("/")
        return PodRequest(
            namespace=namespace,
            name=name,
            uid=uid,
            labels=labels,
            annotations=annotations,
            cgroup_parent=parent,
            batch=batch,
        )

    def container(
        self, pod: PodRequest, *, name: str, container_id: str, env: Mapping[str, str], cfs_quota: int = 0
    ) -> ContainerRequest:
        """Return the request of a container as a runtime describes it; without a pod path it has none either."""
        identity = hook_container_id(pod.annotations, container_id, self._default_runtime)
        parent = ""
        if pod.cgroup_parent:
            try:
                parent = self._layout.paths.container(pod.cgroup_parent, identity)
            except ContainerIdError:
                parent = pod.cgroup_parent
        return ContainerRequest(
            pod=pod,
            name=name,
            container_id=identity,
            cgroup_parent=parent,
            env=env,
            resources=OriginResources(shares=0, quota=cfs_quota, memory_limit=0) if cfs_quota else None,
            batch=(pod.batch or {}).get(name),
        )

    def run_pod(self, stage: Stage, request: PodRequest) -> StageResult:
        """Run a pod stage and have what it wants for the pod's cgroup written."""
        began = self._clock.monotonic()
        result = self.plugins.hooks.run_pod(stage, request)
        self._timed(stage, result, began)
        _log(stage, request, result)
        writes = pod_writes(request, result.response)
        if writes and request.cgroup_parent:
            self._kernel.post(partial(self._executor.apply_batch, Batch.flat(*writes)), "writing values of a new pod")
        if self._resctrl is not None and stage is Stage.PRE_RUN_POD_SANDBOX:
            self._kernel.post(partial(self._resctrl.add_pod, request), "making the resctrl group of a pod")
        elif self._resctrl is not None and stage is Stage.PRE_REMOVE_POD_SANDBOX:
            self._kernel.post(partial(self._resctrl.remove_pod, request.uid), "removing the resctrl group of a pod")
        return result

    def run_container(self, stage: Stage, request: ContainerRequest) -> StageResult:
        """Run a container stage; the caller applies the answer."""
        if self._resctrl is not None:
            self.plugins.resctrl_groups = self._resctrl.groups
        began = self._clock.monotonic()
        result = self.plugins.hooks.run_container(stage, request)
        self._timed(stage, result, began)
        _log(stage, request.pod, result)
        return result

    def _timed(self, stage: Stage, result: StageResult, began: float) -> None:
        status = "failed" if result.errors else "success"
        self._millis.add(1000 * (self._clock.monotonic() - began), str(stage), status)


def _log(stage: Stage, pod: PodRequest, result: StageResult) -> None:
    for name, message in result.errors:
        log.warning("hook failed", stage=str(stage), hook=name, pod=f"{pod.namespace}/{pod.name}", error=message)
