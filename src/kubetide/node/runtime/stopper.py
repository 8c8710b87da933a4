"""Stops the containers of pods whose eviction the API accepted, so that their memory comes back at once.

containerd, CRI-O and pouch are asked over the container runtime interface (v1, older ones v1alpha2), docker over its
HTTP API; which one it is stands in the container's id. A container that is not running, or cannot be stopped, does not
keep the others running: the kubelet ends them all when the grace period is over.
"""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import aiohttp

from kubetide.errors import KubetideError, Unavailable
from kubetide.log import get_logger
from kubetide.node.core.snapshot import PodState
from kubetide.node.runtime.cri import CONNECT_SECONDS, CriClient

log = get_logger("node.stopper")

ANSWER_SECONDS = 10.0
STOPPED, NOT_RUNNING, NOT_THERE = 204, 304, 404


class Stops(Protocol):
    """A runtime that can stop containers."""

    async def stop_container(self, container_id: str, *, timeout: int = 0) -> None:
        """Stop a container; with 0 seconds it is killed at once."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class DockerFailed(KubetideError):
    """Docker refused a call."""


class DockerClient:
    """The one call of docker's API that the agent needs."""

    def __init__(self, socket: Path) -> None:
        wait = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        self._session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=str(socket)), timeout=wait)

    async def stop_container(self, container_id: str, *, timeout: int = 0) -> None:
        """Stop a container; one that is stopped or gone already is as good."""
        try:
            answer = await self._session.post(f"http://docker/containers/{container_id}/stop", params={"t": timeout})
            async with answer:
                if answer.status not in (STOPPED, NOT_RUNNING, NOT_THERE):
                    raise DockerFailed(f"stop of {container_id}: {answer.status} {(await answer.text()).strip()}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(f"docker: {error}") from error

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()


SOCKETS = {
    "containerd": ("containerd/containerd.sock", "containerd.sock"),
    "cri-o": ("crio/crio.sock",),
    "pouch": ("pouchcri.sock",),
    "docker": ("docker.sock",),
}


class ContainerStopper:
    """Stops containers at the runtimes of this machine."""

    def __init__(self, var_run: Path) -> None:
        self._var_run = var_run

    async def stop(self, pod: PodState) -> list[str]:
        """Stop every running container of a pod; return the names of those that were."""
        stopped: list[str] = []
        statuses = (*(pod.pod.status.init_container_statuses or ()), *(pod.pod.status.container_statuses or ()))
        clients: dict[str, Stops] = {}
        async with AsyncExitStack() as stack:
            for status in statuses:
                runtime, _, hash_ = status.container_id.partition("://")
                if not hash_ or status.state is None or status.state.running is None:
                    continue
                try:
                    if runtime not in clients:
                        clients[runtime] = await self._connect(runtime, stack)
                    await clients[runtime].stop_container(hash_)
                    stopped.append(status.name)
                except KubetideError as error:
                    log.warning("container not stopped", pod=pod.key, container=status.name, error=str(error))
        return stopped

    async def _connect(self, runtime: str, stack: AsyncExitStack) -> Stops:
        candidates = [self._var_run / name for name in SOCKETS.get(runtime, ())]
        socket = next((path for path in candidates if path.exists()), None)
        if socket is None:
            raise Unavailable(f"no socket of runtime {runtime!r} under {self._var_run}")
        if runtime == "docker":
            docker = DockerClient(socket)
            stack.push_async_callback(docker.close)
            return docker
        client = CriClient(socket)
        stack.push_async_callback(client.close)
        await client.negotiate()
        return client
