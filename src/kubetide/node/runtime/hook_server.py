"""The hook service for a runtime proxy: gRPC on a Unix socket, and the file by which the proxy finds it.

Each call builds a request, runs the stage and answers with a copy of the request's fields plus what the hooks set.
The answer is made even when a hook failed; the call fails only where the failure policy says so. The server
describes its service to tools by reflection.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_reflection.v1alpha import reflection

from kubetide.api.values.codec import encode
from kubetide.kube.connections import ConnectionLimits
from kubetide.log import get_logger
from kubetide.node.core.hooks.context import HookResponse
from kubetide.node.core.hooks.stages import FailurePolicy, Stage, StageResult
from kubetide.node.runtime.hook_service import HookService
from kubetide.node.runtime.protos import hooks_pb2 as pb

log = get_logger("node.hooks")

SERVICE = "runtime.v1alpha1.RuntimeHookService"
REGISTRATION = "koordlet.json"
POD_STAGES = (Stage.PRE_RUN_POD_SANDBOX, Stage.POST_STOP_POD_SANDBOX, Stage.PRE_REMOVE_POD_SANDBOX)


def registration(endpoint: str, policy: FailurePolicy, stages: tuple[Stage, ...]) -> bytes:
    """Return the file that shows a proxy where the hooks are and which stages they have."""
    return encode(
        {
            "remote-endpoint": endpoint,
            "failure-policy": str(policy),
            "runtime-hooks": [str(stage) for stage in stages],
        }
    )


class HookServer:
    """Serves the hooks to a runtime proxy."""

    def __init__(
        self,
        service: HookService,
        *,
        socket: Path,
        host_endpoint: str,
        config_directory: Path | None,
        failure_policy: FailurePolicy = FailurePolicy.IGNORE,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self.name = "hook-server"
        self._service = service
        self._socket = socket
        self._host_endpoint = host_endpoint
        self._config_directory = config_directory
        self._failure_policy = failure_policy
        self._limits = limits or ConnectionLimits()
        self._serving = False

    def ready(self) -> bool:
        """Whether it answers."""
        return self._serving

    def healthy(self) -> bool:
        """Whether it should be left alone."""
        return True

    async def run(self) -> None:
        """Serve until cancelled."""
        self._socket.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._socket.unlink(missing_ok=True)
        server = grpc.aio.server(options=self._limits.grpc_options())
        server.add_generic_rpc_handlers((_Handler(self),))
        reflection.enable_server_reflection((SERVICE, reflection.SERVICE_NAME), server)
        server.add_insecure_port(f"unix://{self._socket}")
        await server.start()
        try:
            self.register()
            self._serving = True
            log.info("serving hooks", socket=str(self._socket))
            await asyncio.Event().wait()
        finally:
            self._serving = False
            await server.stop(grace=1.0)

    def register(self) -> None:
        """Write the registration file in one step, so that a proxy never reads half of it."""
        if self._config_directory is None:
            return
        text = registration(self._host_endpoint, self._failure_policy, self._service.plugins.hooks.stages)
        target = self._config_directory / REGISTRATION
        draft = target.with_suffix(".tmp")
        draft.write_bytes(text)
        os.replace(draft, target)

    async def pod_hook(self, stage: Stage, payload: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        """Answer a pod stage."""
        request = pb.PodSandboxHookRequest.FromString(payload)
        pod = self._service.pod(
            namespace=request.pod_meta.namespace,
            name=request.pod_meta.name,
            uid=request.pod_meta.uid,
            labels=dict(request.labels),
            annotations=dict(request.annotations),
            cgroup_parent=request.cgroup_parent,
        )
        result = self._service.run_pod(stage, pod)
        answer = pb.PodSandboxHookResponse(
            labels=request.labels, annotations=request.annotations, cgroup_parent=request.cgroup_parent
        )
        if request.HasField("resources"):
            answer.resources.CopyFrom(request.resources)
        _fill(answer.resources, result.response)
        await _refuse(result, context)
        return answer.SerializeToString()

    async def container_hook(self, stage: Stage, payload: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        """Answer a container stage."""
        request = pb.ContainerResourceHookRequest.FromString(payload)
        pod = self._service.pod(
            namespace=request.pod_meta.namespace,
            name=request.pod_meta.name,
            uid=request.pod_meta.uid,
            labels=dict(request.pod_labels),
            annotations=dict(request.pod_annotations),
            cgroup_parent=request.pod_cgroup_parent,
        )
        container = self._service.container(
            pod,
            name=request.container_meta.name,
            container_id=request.container_meta.id,
            env=dict(request.container_envs),
            cfs_quota=request.container_resources.cpu_quota,
        )
        result = self._service.run_container(stage, container)
        answer = pb.ContainerResourceHookResponse(
            container_annotations=request.container_annotations,
            pod_cgroup_parent=request.pod_cgroup_parent,
            container_envs=request.container_envs,
        )
        if request.HasField("container_resources"):
            answer.container_resources.CopyFrom(request.container_resources)
        _fill(answer.container_resources, result.response)
        answer.container_envs.update(result.response.env)
        await _refuse(result, context)
        return answer.SerializeToString()


class _Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not subscriptable at run time
    """Routes the eight calls of the hook service."""

    def __init__(self, server: HookServer) -> None:
        self._server = server
        self._stages = {f"/{SERVICE}/{stage}Hook": stage for stage in Stage}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        stage = self._stages.get(handler_call_details.method)
        if stage is None:
            return None
        answer: Callable[[Stage, bytes, Any], Awaitable[bytes]] = (
            self._server.pod_hook if stage in POD_STAGES else self._server.container_hook
        )

        async def handle(payload: bytes, context: Any) -> bytes:
            return await answer(stage, payload, context)

        return grpc.unary_unary_rpc_method_handler(handle)


def _fill(resources: pb.LinuxContainerResources, response: HookResponse) -> None:
    """Put a response into resources; nothing is set, and so no message made, where the hooks set nothing."""
    if response.cpu_shares is not None:
        resources.cpu_shares = response.cpu_shares
    if response.cfs_quota is not None:
        resources.cpu_quota = response.cfs_quota
    if response.memory_limit is not None:
        resources.memory_limit_in_bytes = response.memory_limit
    if response.cpuset is not None:
        resources.cpuset_cpus = response.cpuset


async def _refuse(result: StageResult, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    if result.failed:
        await context.abort(grpc.StatusCode.INTERNAL, result.error)
