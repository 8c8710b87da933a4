"""The NRI plugin: containerd and CRI-O ask it before they create or update a container.

The plugin registers on the runtime's socket, says which events it wants, and answers each with the values of the
hooks. When the connection ends (the runtime restarts) it registers again, with growing pauses; containers that were
made meanwhile are left to the reconciler. A socket that is not there is not an error: the runtime may have NRI
switched off.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import yaml

from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.pacing import Backoff
from kubetide.log import get_logger
from kubetide.node.core.hooks.context import HookResponse, PodRequest
from kubetide.node.core.hooks.stages import Stage
from kubetide.node.runtime.hook_service import HookError, HookService
from kubetide.node.runtime.protos import nri_pb2 as pb
from kubetide.node.runtime.ttrpc import MuxConnection, UnknownMethod

log = get_logger("node.nri")

PLUGIN_NAME, PLUGIN_INDEX = "kubetide_nri", "00"
RUNTIME = "nri.pkg.api.v1alpha1.Runtime"
EVENTS = (
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "PostCreateContainer",
    "StartContainer",
    "PostStartContainer",
    "UpdateContainer",
    "PostUpdateContainer",
    "StopContainer",
    "RemoveContainer",
)
DEFAULT_EVENTS = ("RunPodSandbox", "RemovePodSandbox", "CreateContainer", "UpdateContainer")
_STAGES = {
    EVENTS.index("RunPodSandbox") + 1: Stage.PRE_RUN_POD_SANDBOX,
    EVENTS.index("RemovePodSandbox") + 1: Stage.PRE_REMOVE_POD_SANDBOX,
}
RECONNECT = Backoff(base=1.0, factor=2.0, cap=30.0)
GOOD_AFTER = 6.0


def event_mask(names: Iterable[str]) -> int:
    """Return the bits of events; an unknown name is an error."""
    mask = 0
    for name in names:
        if name not in EVENTS:
            raise InvalidInput(f"{name!r} is not an NRI event", field="events")
        mask |= 1 << EVENTS.index(name)
    return mask


def configured_events(config: str) -> tuple[str, ...]:
    """Return the events that the runtime's plugin configuration asks for, the default ones without any."""
    if not config.strip():
        return DEFAULT_EVENTS
    try:
        parsed = yaml.safe_load(config)
    except yaml.YAMLError as error:
        raise InvalidInput(f"the plugin configuration is not YAML: {error}", field="events") from error
    events = parsed.get("events") if isinstance(parsed, dict) else None
    if not isinstance(events, list) or not all(isinstance(name, str) for name in events):
        raise InvalidInput("the plugin configuration has no list of events", field="events")
    return tuple(events)


class NriPlugin:
    """Answers the events of one runtime."""

    def __init__(
        self,
        service: HookService,
        socket: Path,
        *,
        name: str = PLUGIN_NAME,
        index: str = PLUGIN_INDEX,
        backoff: Backoff = RECONNECT,
        good_after: float = GOOD_AFTER,
    ) -> None:
        self.name = "nri"
        self.synchronized = asyncio.Event()
        self.registrations = 0
        self._service = service
        self._socket = socket
        self._plugin_name = name
        self._plugin_index = index
        self._backoff = backoff
        self._good_after = good_after
        self._handlers: dict[str, Callable[[bytes], bytes]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "CreateContainer": self._create,
            "UpdateContainer": self._update,
            "StateChange": self._state_change,
            "StopContainer": lambda _: pb.StopContainerResponse().SerializeToString(),
            "Shutdown": lambda _: pb.Empty().SerializeToString(),
        }

    def ready(self) -> bool:
        """NRI is one of three ways in; nothing waits for it."""
        return True

    def healthy(self) -> bool:
        """A runtime that is away is no reason to restart."""
        return True

    async def run(self) -> None:
        """Stay registered until cancelled."""
        attempt = 0
        told = ""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._session()
                told = ""
                log.info("NRI connection ended; registering again", socket=str(self._socket))
            except FileNotFoundError as error:
                if told != str(error):
                    told = str(error)
                    log.info("no NRI socket; containers are left to the reconciler", socket=str(self._socket))
            except (OSError, KubetideError) as error:
                if told != str(error):
                    told = str(error)
                    log.warning("NRI is not usable", socket=str(self._socket), error=told)
            self.synchronized.clear()
            # A runtime that takes the connection and drops it at once must not be asked in a tight loop.
            attempt = 0 if loop.time() - began >= self._good_after else attempt
            await asyncio.sleep(self._backoff.delay(attempt))
            attempt += 1

    async def _session(self) -> None:
        reader, writer = await asyncio.open_unix_connection(str(self._socket))
        connection = MuxConnection(reader, writer, self._handle)
        refused: KubetideError | None = None
        async with asyncio.TaskGroup() as group:
            group.create_task(connection.run())
            request = pb.RegisterPluginRequest(plugin_name=self._plugin_name, plugin_idx=self._plugin_index)
            try:
                await connection.call(RUNTIME, "RegisterPlugin", request.SerializeToString())
                self.registrations += 1
            except KubetideError as error:
                refused = error
                connection.close()
        if refused is not None:
            raise refused

    async def _handle(self, service: str, method: str, payload: bytes) -> bytes:
        handler = self._handlers.get(method)
        if handler is None:
            raise UnknownMethod(f"{service} has no method {method}")
        return handler(payload)

    def _configure(self, payload: bytes) -> bytes:
        request = pb.ConfigureRequest.FromString(payload)
        events = configured_events(request.config)
        log.info("registered", runtime=request.runtime_name, version=request.runtime_version, events=list(events))
        return pb.ConfigureResponse(events=event_mask(events)).SerializeToString()

    def _synchronize(self, payload: bytes) -> bytes:
        request = pb.SynchronizeRequest.FromString(payload)
        if not request.more:
            self.synchronized.set()
        return pb.SynchronizeResponse(more=request.more).SerializeToString()

    def _state_change(self, payload: bytes) -> bytes:
        event = pb.StateChangeEvent.FromString(payload)
        stage = _STAGES.get(event.event)
        if stage is not None:
            result = self._service.run_pod(stage, self._pod(event.pod))
            if result.failed:
                raise HookError(result.error)
        return pb.Empty().SerializeToString()

    def _create(self, payload: bytes) -> bytes:
        request = pb.CreateContainerRequest.FromString(payload)
        quota = request.container.linux.resources.cpu.quota.value
        response = self._container(Stage.PRE_CREATE_CONTAINER, request.pod, request.container, quota)
        answer = pb.CreateContainerResponse()
        if not response.empty:
            answer.adjust.env.extend(pb.KeyValue(key=key, value=value) for key, value in response.env.items())
            _fill(answer.adjust.linux.resources, response)
            if response.resctrl_group is not None:
                answer.adjust.linux.resources.rdt_class.value = response.resctrl_group
        return answer.SerializeToString()

    def _update(self, payload: bytes) -> bytes:
        request = pb.UpdateContainerRequest.FromString(payload)
        quota = request.linux_resources.cpu.quota.value
        response = self._container(Stage.PRE_UPDATE_CONTAINER_RESOURCES, request.pod, request.container, quota)
        answer = pb.UpdateContainerResponse()
        update = pb.ContainerUpdate(container_id=request.container.id)
        _fill(update.linux.resources, response)
        if update.linux.resources.ByteSize():
            answer.update.append(update)
        return answer.SerializeToString()

    def _container(self, stage: Stage, pod: pb.PodSandbox, container: pb.Container, quota: int) -> HookResponse:
        pairs = (entry.partition("=") for entry in container.env)
        env = {key: value for key, _, value in pairs if key and value}
        request = self._service.container(
            self._pod(pod), name=container.name, container_id=container.id, env=env, cfs_quota=quota
        )
        result = self._service.run_container(stage, request)
        if result.failed:
            raise HookError(result.error)
        return result.response

    def _pod(self, pod: pb.PodSandbox) -> PodRequest:
        return self._service.pod(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            labels=dict(pod.labels),
            annotations=dict(pod.annotations),
            cgroup_parent=pod.linux.cgroup_parent,
        )


def _fill(resources: pb.LinuxResources, response: HookResponse) -> None:
    """Put a response into NRI's resources. An empty cpuset cannot be said in NRI: the field would mean "unchanged"."""
    if response.cpu_shares is not None:
        resources.cpu.shares.value = response.cpu_shares
    if response.cfs_quota is not None:
        resources.cpu.quota.value = response.cfs_quota
    if response.cpuset:
        resources.cpu.cpus = response.cpuset
    if response.memory_limit is not None:
        resources.memory.limit.value = response.memory_limit
