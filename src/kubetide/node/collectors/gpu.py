"""GPU usage of the node, its pods and containers, from the processes that compute on each device."""

from collections.abc import Iterable

from kubetide.node.collectors.base import READ_ERRORS, BaseCollector, Context, log, skips
from kubetide.node.core.report import Gpu
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Key
from kubetide.node.core.series.store import key_of
from kubetide.node.runtime.nvml import GpuSource, NvmlError, ProcessUsage

Usage = dict[int, dict[int, ProcessUsage]]


class GpuCollector(BaseCollector):
    """Samples the GPU kinds; keeps the list of GPUs as a fact."""

    name = "GPU"

    def __init__(self, context: Context, interval: float, source: GpuSource) -> None:
        super().__init__(context, interval)
        self._reader = context.reader
        self._source = source
        self._gpus = tuple(
            Gpu(uuid=device.uuid, minor=device.minor, memory_total=device.memory_total) for device in source.devices()
        )
        context.store.facts.gpus = self._gpus

    def collect(self) -> bool:
        """Read the processes of all GPUs and add them up by pod and container."""
        usage: Usage = {}
        for gpu in self._gpus:
            try:
                usage[gpu.minor] = {one.pid: one for one in self._source.processes(gpu.minor)}
            except NvmlError as error:
                log.debug("GPU not read", gpu=gpu.uuid, error=str(error))
        samples: list[tuple[Key, float]] = []
        for gpu in self._gpus:
            if gpu.minor in usage:
                samples += _values(gpu, usage[gpu.minor].values(), kinds.NODE_GPU_CORE, kinds.NODE_GPU_MEMORY, ())
        samples += self._pods(usage)
        self.store(samples)
        return True

    def _pods(self, usage: Usage) -> list[tuple[Key, float]]:
        samples: list[tuple[Key, float]] = []
        for pod in self.context.pods():
            of_pod: dict[int, dict[int, ProcessUsage]] = {}
            for container in pod.containers:
                if not container.directory or not container.running:
                    continue
                try:
                    pids = self._reader.processes(container.directory)
                except READ_ERRORS as error:
                    skips(pod, error)
                    continue
                for gpu in self._gpus:
                    found = {pid: usage[gpu.minor][pid] for pid in pids if pid in usage.get(gpu.minor, {})}
                    if found:
                        of_pod.setdefault(gpu.minor, {}).update(found)
                        who = ((kinds.CONTAINER_ID, container.id),)
                        samples += _values(
                            gpu, found.values(), kinds.CONTAINER_GPU_CORE, kinds.CONTAINER_GPU_MEMORY, who
                        )
            for gpu in self._gpus:
                if gpu.minor in of_pod:
                    who = ((kinds.POD_UID, pod.uid),)
                    samples += _values(gpu, of_pod[gpu.minor].values(), kinds.POD_GPU_CORE, kinds.POD_GPU_MEMORY, who)
        return samples


def _values(
    gpu: Gpu,
    processes: Iterable[ProcessUsage],
    core: str,
    memory: str,
    who: tuple[tuple[str, str], ...],
) -> list[tuple[Key, float]]:
    listed = list(processes)
    pairs = (*who, (kinds.GPU_MINOR, str(gpu.minor)), (kinds.GPU_UUID, gpu.uuid))
    return [
        (key_of(core, *pairs), float(sum(one.busy_percent for one in listed))),
        (key_of(memory, *pairs), float(sum(one.memory_bytes for one in listed))),
    ]
