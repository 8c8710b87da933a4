"""Readers of what others wrote: each gets a corpus and what becomes of it, and answers or refuses, never crashes."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
import pytest
from google.protobuf.message import DecodeError

from drills.drill import Run, drill
from drills.fuzz import CORPUS, Found, fuzz, look, seeds
from kubetide.api.objects import scheme
from kubetide.api.objects.core import Node, Pod
from kubetide.api.objects.sample_frames import decode_frame
from kubetide.api.objects.vpa import VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint
from kubetide.api.qos import qos, reservation
from kubetide.api.values.codec import decode, decode_raw
from kubetide.api.values.cpuset import CpuSet
from kubetide.api.values.quantity import cpu_millis, memory_bytes, parse_quantity, quantity_float
from kubetide.errors import InvalidInput, KubetideError
from kubetide.hpa.core import annotations as hpa_annotations
from kubetide.kube.client.decoding import decode_page, parse_line
from kubetide.node.core.formats import blkio, cpu, memory, processors, psi, storage
from kubetide.node.core.hooks.rules import Plugins
from kubetide.node.runtime.cri import resources_of, variables_of
from kubetide.node.runtime.hook_service import HookService
from kubetide.node.runtime.nri import NriPlugin
from kubetide.node.runtime.protos import cri_pb2 as cri
from kubetide.node.runtime.proxy_store import from_message, pod_of
from kubetide.node.runtime.ttrpc import MuxConnection
from kubetide.slo.core.config import (
    COLOCATION_KEY,
    NODESLO_KEYS,
    AmplificationState,
    ColocationState,
    NodeSLOConfig,
    NormalizationState,
)
from kubetide.stats.prometheus_ranges import read_any
from kubetide.vpa.recommender.core.aggregate import Tuning
from kubetide.vpa.recommender.core.checkpoint import read_checkpoint
from kubetide.vpa.recommender.core.estimator import Estimation
from kubetide.vpa.recommender.core.history.prometheus_queries import read_labels, read_series
from kubetide.vpa.recommender.core.tuning import tuned
from kubetide.vpa.recommender.settings import RecommenderSettings
from nodeworld import World

KINDS = [one for one in vars(scheme).values() if isinstance(one, scheme.Resource)]
EXAMPLES, EXPLORED = 400, 20_000


def all_of(readers: Iterable[Callable[[], object]]) -> object:
    """Let every reader try; return what each made of it, or raise the last refusal if none understood."""
    answers: list[str] = []
    refusal: KubetideError | None = None
    for reader in readers:
        try:
            answers.append(type(reader()).__name__)
        except KubetideError as error:
            answers.append("")
            refusal = error
    if refusal is not None and not any(answers):
        raise refusal
    return " ".join(answers)


def read_object(data: bytes) -> object:
    """Objects of every kind that is read, with what is read from them next."""

    def whole(kind: type[Any]) -> object:
        found = decode(data, kind)
        if isinstance(found, VerticalPodAutoscalerCheckpoint):
            read_checkpoint(found)
        elif isinstance(found, Pod):
            qos.pod_request(found), qos.defaulted_qos(found), qos.pod_memory_limit(found)
        elif isinstance(found, Node):
            reservation.node_reserved(found)
        return found

    return all_of(partial(whole, each.type) for each in KINDS)


def read_quantity(data: bytes) -> object:
    """Amounts."""
    text = data.decode(errors="replace")
    return all_of(partial(each, text) for each in (parse_quantity, cpu_millis, memory_bytes, quantity_float))


HPA_NAMES = [value for name, value in vars(hpa_annotations).items() if name.isupper() and isinstance(value, str)]
QOS_NAMES = [value for name, value in vars(qos).items() if name.startswith("ANNOTATION")]


def read_annotation(data: bytes) -> object:
    """Annotations of autoscalers, VPAs, pods and nodes: all of them with the same text."""
    text = data.decode(errors="replace")
    named = dict.fromkeys(
        [*HPA_NAMES, *QOS_NAMES, "node.koordinator.sh/reservation", "node.koordinator.sh/system-qos-resource"], text
    )
    readers: list[Callable[[], object]] = [
        lambda: hpa_annotations.overrides_of(named),
        lambda: reservation.reservation(named),
        lambda: reservation.reserved_cpus(named),
        lambda: reservation.annotation_reserved(named),
        lambda: reservation.system_qos(named),
        lambda: qos.device_allocations(named),
        lambda: qos.resource_status(named),
        lambda: qos.dedicated_cpus(named),
        lambda: tuned(
            None,
            {
                f"kubetide.io/{name}": text
                for name in ("target-cpu-percentile", "memory-histogram-decay-half-life", "x")
            },
            tuning=Tuning(),
            estimation=Estimation(),
            policies=True,
            by_annotation=True,
        ),
    ]
    return all_of(readers)


def read_config_map(data: bytes) -> object:
    """The ConfigMap of the SLO controller: every key with the same text."""
    text = data.decode(errors="replace")
    given = dict.fromkeys(
        (COLOCATION_KEY, *NODESLO_KEYS, "cpu-normalization-config", "resource-amplification-config"), text
    )
    states = (NodeSLOConfig.initial(), ColocationState.initial(), NormalizationState(), AmplificationState())
    return all_of(partial(each.updated, given) for each in states)


FILES: tuple[Callable[[str], object], ...] = (
    *(cpu.usage_nanos_v2, cpu.quota_v2, cpu.period_v2, cpu.shares_to_weight, cpu.busy_ticks, cpu.busy_ticks_by_cpu),
    *(cpu.cpu_model, cpu.cpu_flags, memory.meminfo, memory.oom_kills, memory.idle_page_stats, psi.pressure),
    *(processors.lscpu, processors.threads_per_core, processors.cache_column, storage.disk_number, storage.pcie_root),
    *(lambda text: cpu.throttling(text, 1), lambda text: cpu.throttling(text, 2)),
    *(lambda text: memory.memory_stat(text, 1), lambda text: memory.memory_stat(text, 2)),
    *(lambda text: memory.numa_usage(text, 1), lambda text: memory.numa_usage(text, 2)),
    *(
        lambda text: storage.read_lsblk(text, storage.StorageFacts()),
        lambda text: storage.read_vgs(text, storage.StorageFacts()),
    ),
    *(
        lambda text: storage.read_lvs(text, storage.StorageFacts()),
        lambda text: storage.read_findmnt(text, storage.StorageFacts()),
    ),
    *(lambda text: blkio.devices_in([text]), lambda text: blkio.line_needed(text, "8:0 1"), CpuSet.parse),
)


def read_kernel_file(data: bytes) -> object:
    """Files of the kernel and the output of tools: every format with the same text."""
    text = data.decode("latin-1")
    return all_of(partial(each, text) for each in FILES)


class Nowhere:
    """The writing end of a connection whose other end does not listen."""

    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


def read_nri(data: bytes) -> object:
    """The bytes of a runtime on NRI's socket, until the connection ends."""

    async def main() -> int:
        world = World()
        plugin = NriPlugin(HookService(Plugins(), world.executor, world.layout), CORPUS / "no.sock")
        reader, writer = asyncio.StreamReader(), Nowhere()
        reader.feed_data(data)
        reader.feed_eof()
        await MuxConnection(reader, writer, plugin._handle).run()  # type: ignore[arg-type]
        return writer.written

    return f"{asyncio.run(main()) > 0}"


MESSAGES = (
    cri.RunPodSandboxRequest,
    cri.CreateContainerRequest,
    cri.UpdateContainerResourcesRequest,
    cri.ListPodSandboxResponse,
    cri.ListContainersResponse,
)


def read_cri(data: bytes) -> object:
    """Messages of the container runtime interface, and the JSON of its verbose answers."""
    found = []
    for kind in MESSAGES:
        try:
            message = kind.FromString(data)
        except DecodeError:
            continue  # gRPC answers this one call with an error
        if isinstance(message, cri.RunPodSandboxRequest):
            pod_of(message)
        elif isinstance(message, cri.UpdateContainerResourcesRequest):
            from_message(message.linux)
        found.append(kind.__name__)
    try:
        raw = decode_raw(data)
        found.append("info" if resources_of(raw) is not None else "")
        found.append("environment" if variables_of(raw) else "")
    except KubetideError:
        if not found:
            raise
    return found


def read_prometheus(data: bytes) -> object:
    """Answers of Prometheus."""
    settings = RecommenderSettings()
    readers = (lambda: read_series(data, settings), lambda: read_any(data), lambda: read_labels(data, settings))
    return all_of(readers)


def _page(data: bytes, kind: type[Any]) -> object:
    return asyncio.run(decode_page(data, kind))


def read_watch_line(data: bytes) -> object:
    """Lines of a watch and pages of a list."""
    readers: list[Callable[[], object]] = []
    for kind in (Pod, VerticalPodAutoscaler):
        readers += [
            partial(parse_line, data, kind),
            partial(_page, data, kind),
        ]
    return all_of(readers)


def read_frame(data: bytes) -> object:
    """Frames of samples, as an agent sends them; who receives them knows one error."""
    try:
        return decode_frame(data)
    except msgspec.DecodeError as error:
        raise InvalidInput(str(error)) from error


READERS: dict[str, Callable[[bytes], object]] = {
    "objects": read_object,
    "quantities": read_quantity,
    "annotations": read_annotation,
    "config-map": read_config_map,
    "kernel-files": read_kernel_file,
    "nri": read_nri,
    "cri": read_cri,
    "prometheus": read_prometheus,
    "watch-lines": read_watch_line,
    "sample-frames": read_frame,
}


@drill(
    "fuzzing",
    shows="what is read of others (objects, quantities, annotations, the ConfigMap, kernel files, NRI and CRI "
    "frames, "
    "answers of Prometheus, lines of watches, frames of samples), changed at random from a corpus that grows: it is "
    "understood or refused by an error of kubetide's own",
    figure="inputs that crashed a reader, let it hang, or took its memory",
    bound=0,
    unit="inputs",
    tier="pure",
    short=f"{EXAMPLES} new inputs a reader instead of {EXPLORED:,}, the same each time",
)
def test_no_reader_crashes_on_anything(run: Run) -> float:
    found: dict[str, Found] = {}
    for name, read in READERS.items():
        found[name] = fuzz(name, read, examples=EXPLORED if run.whole else EXAMPLES, explore=run.whole)
    crashes = [crash for one in found.values() for crash in one.crashes]
    assert crashes == []
    assert all(one.inputs > EXAMPLES for one in found.values())
    return len(crashes)


def test_there_is_a_corpus_for_every_reader() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(READERS)
    assert all(len(seeds(name)) >= 2 for name in READERS)
    sizes = [path.stat().st_size for path in CORPUS.glob("*/*")]
    assert max(sizes) <= 4096


@pytest.mark.parametrize("name", READERS)
def test_part_of_the_corpus_is_understood(name: str) -> None:
    """A corpus that is refused as a whole would show how errors are made, and nothing else."""
    looks = {look(READERS[name], data) for data in seeds(name)}
    assert any(":" not in each for each in looks), looks
