"""The runtime proxy: stands between kubelet and container runtime and lets hook servers change requests.

Seven calls are looked into; every other call of every service passes as bytes. A call whose pod or container is not
known, or whose pod says to be left alone, passes unchanged. A hook server that fails stops a call only when its
failure policy says so.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message

from kubetide.api.values.codec import decode_raw
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.connections import ConnectionLimits
from kubetide.log import get_logger
from kubetide.node.core.hooks.stages import FailurePolicy, Stage
from kubetide.node.runtime.cri import CriClient, resources_of, variables_of
from kubetide.node.runtime.hook_server import POD_STAGES, SERVICE
from kubetide.node.runtime.protos import cri_pb2 as cri
from kubetide.node.runtime.protos import hooks_pb2 as hooks
from kubetide.node.runtime.proxy_config import HookDirectory
from kubetide.node.runtime.proxy_store import (
    ProxyStore,
    StoredContainer,
    StoredPod,
    container_hook_request,
    container_of,
    from_message,
    pod_hook_request,
    pod_of,
    updated,
    with_container_answer,
    with_pod_answer,
    with_update_answer,
)

log = get_logger("runtime-proxy")

FRESH_SECONDS = 1.0
HOOK_SECONDS = 10.0
CLIENTS = 10
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class HookRefused(KubetideError):
    """A hook server failed and its policy is to fail the call."""


class RuntimeProxy:
    """Serves the runtime interface and passes calls on."""

    def __init__(
        self,
        *,
        endpoint: Path,
        backend: Path,
        directory: HookDirectory,
        skip_label: tuple[str, str] = ("runtimeproxy.koordinator.sh/skip-hookserver", "true"),
        hook_timeout: float = HOOK_SECONDS,
    ) -> None:
        self.name = "runtime-proxy"
        self.store = ProxyStore()
        self.version = ""
        self._endpoint = endpoint
        self._backend_socket = backend
        self._directory = directory
        self._skip = skip_label
        self._hook_timeout = hook_timeout
        self._hook_clients: OrderedDict[str, grpc.aio.Channel] = OrderedDict()
        self._serving = False
        self._scanned = float("-inf")
        self._channel: grpc.aio.Channel | None = None
        self.calls: dict[str, Callable[[str, bytes], Awaitable[bytes]]] = {
            "RunPodSandbox": self._run_pod_sandbox,
            "StopPodSandbox": self._stop_pod_sandbox,
            "RemovePodSandbox": self._remove_pod_sandbox,
            "CreateContainer": self._create_container,
            "StartContainer": self._start_container,
            "StopContainer": self._stop_container,
            "UpdateContainerResources": self._update_container,
        }

    def ready(self) -> bool:
        """Whether it answers."""
        return self._serving

    def healthy(self) -> bool:
        """Whether it should be left alone."""
        return True

    async def run(self) -> None:
        """Serve until cancelled; fail when the runtime speaks no version that is known."""
        self._channel = grpc.aio.insecure_channel(f"unix://{self._backend_socket}", options=UNLIMITED)
        try:
            await self._learn()
            await self._serve()
        finally:
            for channel in [self._channel, *self._hook_clients.values()]:
                await channel.close(None)

    async def _learn(self) -> None:
        """Find out what the runtime speaks and what runs."""
        client = CriClient(self._backend_socket)
        try:
            self.version = await client.negotiate()
            await self.restore(client)
        finally:
            await client.close()

    async def _serve(self) -> None:
        self._endpoint.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._endpoint.unlink(missing_ok=True)
        server = grpc.aio.server(options=[*UNLIMITED, *ConnectionLimits().grpc_options()])
        server.add_generic_rpc_handlers((_Handler(self),))
        server.add_insecure_port(f"unix://{self._endpoint}")
        await server.start()
        log.info("proxying", endpoint=str(self._endpoint), backend=str(self._backend_socket), version=self.version)
        try:
            self._serving = True
            await asyncio.Event().wait()
        finally:
            self._serving = False
            await server.stop(grace=1.0)

    async def restore(self, client: CriClient) -> None:
        """Fill the store with what runs already, with what the runtime's verbose answers add."""
        for sandbox in await client.sandboxes():
            pod = StoredPod(
                name=sandbox.metadata.name,
                uid=sandbox.metadata.uid,
                namespace=sandbox.metadata.namespace,
                runtime_handler=sandbox.runtime_handler,
                labels=dict(sandbox.labels),
                annotations=dict(sandbox.annotations),
            )
            info = await _info(client, "PodSandboxStatus", sandbox.id, cri.PodSandboxStatusResponse)
            parent = _at(info, "config", "linux", "cgroup_parent")
            self.store.pods[sandbox.id] = replace(pod, cgroup_parent=parent) if isinstance(parent, str) else pod
        for container in await client.containers():
            known = self.store.pods.get(container.pod_sandbox_id)
            if known is None:
                continue
            info = await _info(client, "ContainerStatus", container.id, cri.ContainerStatusResponse)
            resources = resources_of(_at(info, "runtimeSpec", "linux", "resources"))
            self.store.containers[container.id] = StoredContainer(
                pod=known,
                name=container.metadata.name,
                attempt=container.metadata.attempt,
                container_id=container.id,
                annotations=dict(container.annotations),
                resources=from_message(resources) if resources is not None else None,
                env=variables_of(_at(info, "config", "envs")),
            )
        log.info("restored", pods=len(self.store.pods), containers=len(self.store.containers))

    async def forward(self, method: str, payload: bytes) -> bytes:
        """Pass one call to the runtime."""
        assert self._channel is not None
        call = self._channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
        answer: bytes = await call(payload)
        return answer

    def forward_stream(self, method: str, payloads: AsyncIterator[bytes]) -> Any:
        """Pass a call of any shape to the runtime."""
        assert self._channel is not None
        call = self._channel.stream_stream(method, request_serializer=bytes, response_deserializer=bytes)
        return call(payloads)

    async def _run_pod_sandbox(self, method: str, payload: bytes) -> bytes:
        request = cri.RunPodSandboxRequest.FromString(payload)
        pod = pod_of(request)
        answer = await self._hook(Stage.PRE_RUN_POD_SANDBOX, pod, pod_hook_request(pod))
        if isinstance(answer, hooks.PodSandboxHookResponse):
            pod = with_pod_answer(request, pod, answer)
            payload = request.SerializeToString()
        body = await self.forward(method, payload)
        self.store.pods[cri.RunPodSandboxResponse.FromString(body).pod_sandbox_id] = pod
        return body

    async def _stop_pod_sandbox(self, method: str, payload: bytes) -> bytes:
        identity = cri.PodSandboxRequest.FromString(payload).pod_sandbox_id
        pod = self.store.pods.get(identity)
        try:
            return await self.forward(method, payload)
        finally:
            if pod is not None:
                await self._post(Stage.POST_STOP_POD_SANDBOX, pod, pod_hook_request(pod))
                self.store.stopped[identity] = pod
            self.store.pods.pop(identity, None)

    async def _remove_pod_sandbox(self, method: str, payload: bytes) -> bytes:
        identity = cri.PodSandboxRequest.FromString(payload).pod_sandbox_id
        pod = self.store.stopped.get(identity) or self.store.pods.get(identity)
        if pod is not None:
            await self._hook(Stage.PRE_REMOVE_POD_SANDBOX, pod, pod_hook_request(pod))
        body = await self.forward(method, payload)
        self.store.stopped.pop(identity, None)
        self.store.pods.pop(identity, None)
        return body

    async def _create_container(self, method: str, payload: bytes) -> bytes:
        request = cri.CreateContainerRequest.FromString(payload)
        pod = self.store.pods.get(request.pod_sandbox_id)
        if pod is None:
            log.warning("container of an unknown sandbox passes unchanged", sandbox=request.pod_sandbox_id)
            return await self.forward(method, payload)
        container = container_of(request, pod)
        answer = await self._hook(Stage.PRE_CREATE_CONTAINER, pod, container_hook_request(container))
        if isinstance(answer, hooks.ContainerResourceHookResponse):
            container = with_container_answer(request, container, answer)
            payload = request.SerializeToString()
        body = await self.forward(method, payload)
        identity = cri.CreateContainerResponse.FromString(body).container_id
        self.store.containers[identity] = replace(container, container_id=identity)
        return body

    async def _start_container(self, method: str, payload: bytes) -> bytes:
        container = self.store.containers.get(cri.ContainerRequest.FromString(payload).container_id)
        if container is None:
            return await self.forward(method, payload)
        request = container_hook_request(container)
        await self._hook(Stage.PRE_START_CONTAINER, container.pod, request)
        try:
            return await self.forward(method, payload)
        finally:
            await self._post(Stage.POST_START_CONTAINER, container.pod, request)

    async def _stop_container(self, method: str, payload: bytes) -> bytes:
        identity = cri.StopContainerRequest.FromString(payload).container_id
        container = self.store.containers.get(identity)
        try:
            return await self.forward(method, payload)
        finally:
            if container is not None:
                await self._post(Stage.POST_STOP_CONTAINER, container.pod, container_hook_request(container))
            self.store.containers.pop(identity, None)

    async def _update_container(self, method: str, payload: bytes) -> bytes:
        request = cri.UpdateContainerResourcesRequest.FromString(payload)
        known = self.store.containers.get(request.container_id)
        if known is None:
            log.warning("update of an unknown container passes unchanged", container=request.container_id)
            return await self.forward(method, payload)
        container = updated(known, request)
        answer = await self._hook(
            Stage.PRE_UPDATE_CONTAINER_RESOURCES, container.pod, container_hook_request(container)
        )
        if isinstance(answer, hooks.ContainerResourceHookResponse):
            container = with_update_answer(request, container, answer)
            payload = request.SerializeToString()
        body = await self.forward(method, payload)
        self.store.containers[request.container_id] = container
        return body

    async def _post(self, stage: Stage, pod: StoredPod, request: Message) -> None:
        try:
            await self._hook(stage, pod, request)
        except HookRefused as error:
            log.warning("post hook failed", stage=str(stage), error=str(error))

    async def _hook(self, stage: Stage, pod: StoredPod, request: Message) -> Message | None:
        """Ask the hook server of a stage; None means that the call passes unchanged."""
        if pod.labels.get(self._skip[0]) == self._skip[1] and self._skip[0]:
            return None
        self._rescan()
        target = self._directory.target(stage)
        if target is None:
            return None
        client = await self._hook_client(target.endpoint)
        call = client.unary_unary(f"/{SERVICE}/{stage}Hook", request_serializer=bytes, response_deserializer=bytes)
        try:
            body: bytes = await call(request.SerializeToString(), timeout=self._hook_timeout)
            if stage in POD_STAGES:
                return hooks.PodSandboxHookResponse.FromString(body)
            return hooks.ContainerResourceHookResponse.FromString(body)
        except (grpc.aio.AioRpcError, ProtobufDecodeError) as error:
            detail = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
            log.warning("hook server failed", stage=str(stage), endpoint=target.endpoint, error=detail)
            if target.policy is FailurePolicy.FAIL:
                raise HookRefused(f"hook server err: {detail}") from error
            return None

    def _rescan(self) -> None:
        """Look at the registrations again, at most once a second: a hook server may just have come or gone."""
        now = asyncio.get_running_loop().time()
        if now - self._scanned >= FRESH_SECONDS:
            self._scanned = now
            self._directory.scan()

    async def _hook_client(self, endpoint: str) -> grpc.aio.Channel:
        if endpoint in self._hook_clients:
            self._hook_clients.move_to_end(endpoint)
        else:
            self._hook_clients[endpoint] = grpc.aio.insecure_channel(f"unix://{endpoint}")
            while len(self._hook_clients) > CLIENTS:
                _, oldest = self._hook_clients.popitem(last=False)
                await oldest.close(None)
        return self._hook_clients[endpoint]


class _Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not subscriptable at run time
    """Handles the seven calls that have hooks and passes everything else on."""

    def __init__(self, proxy: RuntimeProxy) -> None:
        self._proxy = proxy

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        method = handler_call_details.method
        service, _, name = method.lstrip("/").rpartition("/")
        inspect = self._proxy.calls.get(name) if service.endswith(".RuntimeService") else None
        if inspect is None:
            return grpc.stream_stream_rpc_method_handler(self._passing(method))

        async def handle(payload: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            try:
                return await inspect(method, payload)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")
            except HookRefused as error:
                await context.abort(grpc.StatusCode.INTERNAL, str(error))
            raise AssertionError("abort does not return")

        return grpc.unary_unary_rpc_method_handler(handle)

    def _passing(self, method: str) -> Any:
        proxy = self._proxy

        async def handle(
            payloads: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
        ) -> AsyncIterator[bytes]:
            try:
                async for answer in proxy.forward_stream(method, payloads):
                    yield answer
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")

        return handle


async def _info(client: CriClient, method: str, identity: str, answer: Any) -> Any:
    """Return the verbose info of a sandbox or container, None where the runtime gives none."""
    try:
        status = await client.call(method, cri.StatusRequest(id=identity, verbose=True), answer)
        text = status.info.get("info", "")
        return decode_raw(text, what=method) if text else None
    except (KubetideError, InvalidInput):
        return None


def _at(raw: Any, *path: str) -> Any:
    for name in path:
        raw = raw.get(name) if isinstance(raw, dict) else None
    return raw
