"""Block I/O as a strategy: limits for the best-effort tier, for single pods, and latency targets for the root.

A scope is one directory with its blocks. If one block of a scope names no known disk, the whole scope is left as it
is: half a configuration is harder to reason about than none. Only lines that differ from the kernel's are planned.
cgroup v1 only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.api.qos.slo_strategies import BlkIOQOS, BlockCfg, IOCfg, ResourceQOS
from kubetide.api.values.codec import decode_folded
from kubetide.errors import InvalidInput
from kubetide.node.core import files
from kubetide.node.core.compat import COST_PERCENTILES
from kubetide.node.core.files import CgroupFile, ValueRefused
from kubetide.node.core.formats.blkio import devices_in
from kubetide.node.core.formats.storage import StorageFacts
from kubetide.node.core.kernel_values import NOTHING, Needs
from kubetide.node.core.plan import Batch, Plan, Subject, Target, Write
from kubetide.node.core.qos.blkio_lines import (
    DEVICE_FILES,
    POD_VOLUME,
    disk_number,
    limit_lines,
    missing_model_values,
    root_latency_lines,
    root_lines,
)
from kubetide.node.core.qos.strategy import skipped
from kubetide.node.core.snapshot import PodState, Snapshot

REASON = "UpdateBlkIO"
GROUP = Subject(type="group", name="blkio")
_ROOT_FILES = (files.BLKIO_COST_QOS, files.BLKIO_COST_MODEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One directory, its blocks, and how their lines look."""

    directory: str
    target: Target
    blocks: Sequence[BlockCfg]
    files: Sequence[CgroupFile] = DEVICE_FILES
    lines: Callable[[str, IOCfg | None], dict[str, str]] = limit_lines
    subject: Subject = GROUP
    mount_points: Callable[[str], str] | None = None


@dataclass(slots=True)
class BlkIo:
    """Limits block devices by class and by pod."""

    interval: timedelta = timedelta(seconds=1)
    name: str = "blkio"
    gate: str = "BlkIOReconcile"

    def needs(self, snapshot: Snapshot) -> Needs:
        """Return the device files of every directory that may have limits."""
        strategy = snapshot.slo.resource_qos_strategy if snapshot.slo else None
        if snapshot.storage is None or strategy is None or snapshot.layout.version != 1:
            return NOTHING
        limited = [snapshot.paths.tier(BEST_EFFORT), *(pod.directory for pod in snapshot.pods if _has_own(pod))]
        return Needs(
            texts=[
                *((file, "") for file in _ROOT_FILES),
                *((file, directory) for directory in limited for file in DEVICE_FILES),
            ]
        )

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the device lines that are missing or no longer wanted."""
        strategy = snapshot.slo.resource_qos_strategy if snapshot.slo else None
        if snapshot.storage is None or strategy is None:
            return skipped("no storage information, or no QoS strategy in the NodeSLO")
        if snapshot.layout.version != 1:
            return skipped("block I/O limits need cgroup v1")
        writes: list[Write] = []
        problems: dict[str, str] = {}
        for name, block in (("lsrClass", strategy.lsr_class), ("lsClass", strategy.ls_class)):
            if blocks_of(block):
                problems[name] = "block limits of this class are not supported"
        for scope in self._scopes(snapshot, strategy.be_class, strategy.cgroup_root, problems):
            try:
                writes += scope_writes(snapshot, snapshot.storage, scope)
            except InvalidInput as error:
                problems[scope.directory or "/"] = str(error)
        return Plan(batches=(Batch.flat(*writes),), trace={"lines": len(writes), "problems": problems})

    def _scopes(
        self,
        snapshot: Snapshot,
        best_effort: ResourceQOS | None,
        root: ResourceQOS | None,
        problems: dict[str, str],
    ) -> Iterable[Scope]:
        yield Scope(directory=snapshot.paths.tier(BEST_EFFORT), target=Target.TIER, blocks=blocks_of(best_effort))
        modelled = snapshot.compat.has(COST_PERCENTILES)
        if modelled:
            for block in blocks_of(root):
                if missing := missing_model_values(block.io_cfg):
                    problems[f"cost model of {block.name}"] = f"not written, missing: {', '.join(missing)}"
        yield Scope(
            directory="",
            target=Target.ROOT,
            blocks=blocks_of(root),
            files=_ROOT_FILES if modelled else (files.BLKIO_COST_QOS,),
            lines=root_lines if modelled else root_latency_lines,
        )
        for pod in snapshot.pods:
            if not _has_own(pod):
                continue
            try:
                blocks = pod_blocks((pod.pod.metadata.annotations or {})[qos.ANNOTATION_BLKIO_QOS])
            except InvalidInput as error:
                problems[pod.key] = str(error)
                continue
            yield Scope(
                directory=pod.directory,
                target=Target.POD,
                blocks=blocks,
                subject=Subject(type="pod", namespace=pod.namespace, name=pod.name),
                mount_points=lambda name, pod=pod: mount_point(snapshot, pod, name),  # type: ignore[misc]
            )


def _has_own(pod: PodState) -> bool:
    """Return whether a pod has block I/O settings of its own."""
    annotations = pod.pod.metadata.annotations
    if not annotations or qos.ANNOTATION_BLKIO_QOS not in annotations:
        return False
    return bool(pod.raw_qos) and pod.pod.status.phase == "Running"


def blocks_of(block: ResourceQOS | None) -> tuple[BlockCfg, ...]:
    """Return the blocks of a class; none unless it is switched on."""
    blkio = block.blkio_qos if block else None
    return (blkio.blocks or ()) if blkio is not None and blkio.enable is True else ()


def pod_blocks(text: str) -> tuple[BlockCfg, ...]:
    """Return the blocks of a pod's annotation; an empty one removes everything."""
    if not text:
        return ()
    return decode_folded(text, BlkIOQOS, what=qos.ANNOTATION_BLKIO_QOS).blocks or ()


def scope_writes(snapshot: Snapshot, storage: StorageFacts, scope: Scope) -> list[Write]:
    """Return the lines of one scope that the kernel does not have yet, removals last."""
    current = {
        file.name: text for file in scope.files if (text := snapshot.kernel.text(file, scope.directory)) is not None
    }
    wanted: dict[str, IOCfg | None] = {}
    for block in scope.blocks:
        place = scope.mount_points(block.name) if scope.mount_points and block.type == POD_VOLUME else None
        wanted[disk_number(storage, block, mount_point=place)] = block.io_cfg or IOCfg()
    # A disk keeps its cost model when it is no longer configured: only its targets are switched off.
    for device in devices_in(text for name, text in current.items() if name != files.BLKIO_COST_MODEL.name):
        wanted.setdefault(device, None)
    return [
        Write(
            file=file,
            value=line,
            directory=scope.directory,
            target=scope.target,
            reason=REASON,
            subject=scope.subject,
            message="limit removed" if limits is None else "",
        )
        for number, limits in wanted.items()
        for name, line in scope.lines(number, limits).items()
        for file in scope.files
        if file.name == name and name in current and not file.same(1, current[name], line) and _takes(file, line)
    ]


def _takes(file: CgroupFile, line: str) -> bool:
    try:
        file.validate(1, line)
    except ValueRefused:
        return False
    return True


def mount_point(snapshot: Snapshot, pod: PodState, volume: str) -> str:
    """Return where the volume of a pod is mounted: a claim by its persistent volume, an ephemeral one by its name."""
    spec = next((found for found in pod.pod.spec.volumes or () if found.name == volume), None)
    if spec is None:
        raise InvalidInput(f"the pod has no volume {volume!r}", subject=pod.key, field="blocks")
    name = volume
    if spec.persistent_volume_claim is not None:
        claim = f"{pod.namespace}/{spec.persistent_volume_claim.claim_name}"
        name = snapshot.claims.get(claim, "")
        if not name:
            raise InvalidInput(f"the volume of claim {claim} is not known", subject=pod.key, field="blocks")
    root = snapshot.layout.kubelet_root.rstrip("/")
    return f"{root}/pods/{pod.uid}/volumes/kubernetes.io~csi/{name}/mount"
