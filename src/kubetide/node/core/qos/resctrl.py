"""Resctrl as a strategy: each class gets its part of the L3 cache and of the memory bandwidth.

Three groups (LSR, LS, BE) always have a policy; a class that is switched off has the full cache and all bandwidth.
The threads of a pod are put into the group of its class while the class is on, and stay there when it is switched
off: the group then limits nothing. A pod whose annotation asks for a group of its own (gate Resctrl) is in that one
and in no other; the agent makes and removes its directory. Only lines and threads that differ from the kernel's are
planned.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta

from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import ResctrlQOS, ResourceQOSStrategy
from kubetide.errors import InvalidInput
from kubetide.node.core import files
from kubetide.node.core.files import Root, SystemFile, resctrl_file
from kubetide.node.core.formats.cpu import cpu_model
from kubetide.node.core.formats.processors import index
from kubetide.node.core.kernel_values import NOTHING, KernelValues, Needs
from kubetide.node.core.plan import Batch, Notice, Plan, Target, Write
from kubetide.node.core.qos.l3_cache import (
    check_root,
    cpu_support,
    l3_mask,
    mba_value,
    parse_schemata,
    parse_tasks,
    schemata_line,
)
from kubetide.node.core.qos.pod_resctrl import annotation_of, own_groups, pod_schemata
from kubetide.node.core.qos.strategy import skipped
from kubetide.node.core.snapshot import PodState, Snapshot, sandbox_among

GROUPS = ("LSR", "LS", "BE")
_GROUP_OF = {qos.LSE: "LSR", qos.LSR: "LSR", qos.LS: "LS", qos.BE: "BE"}
L3, MB = "L3", "MB"
GROUP_FAILED = "ResctrlGroupFailed"
CPUINFO = SystemFile(name="cpuinfo", root=Root.PROC, path="cpuinfo")
ROOT_SCHEMATA = resctrl_file("", "schemata")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFacts:
    """What the machine reports about its caches."""

    cbm: int
    vendor: str
    cache_ids: tuple[int, ...]
    l3_count: int


@dataclass(slots=True)
class Resctrl:
    """Divides cache and memory bandwidth between classes."""

    interval: timedelta = timedelta(seconds=1)
    name: str = "resctrl"
    gate: str = "RdtResctrl"
    _supported: bool | None = None
    _vendor: str = ""
    _cache_ids: tuple[int, ...] = ()

    def needs(self, snapshot: Snapshot) -> Needs:
        """Return the files of the groups, and the threads of the pods whose class is switched on."""
        strategy = snapshot.slo.resource_qos_strategy if snapshot.slo else None
        if strategy is None or self._supported is False:
            return NOTHING
        bound = list(_bound(snapshot, strategy))
        own = own_groups(snapshot)
        return Needs(
            settings=[
                *((CPUINFO,) if self._supported is None else ()),
                *(() if self._cache_ids else (ROOT_SCHEMATA,)),
                files.RESCTRL_CBM_MASK,
                *(resctrl_file(group, "schemata") for group in GROUPS),
                *(resctrl_file(group, "tasks") for group in GROUPS if any(group == of for of, _ in bound)),
                *(resctrl_file(group, name) for group in own for name in ("schemata", "tasks")),
            ],
            texts_below=[(files.TASKS, pod.directory) for pod in (*(pod for _, pod in bound), *own.values())],
        )

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the schemata and tasks that differ from the kernel's."""
        strategy = snapshot.slo.resource_qos_strategy if snapshot.slo else None
        if strategy is None:
            return skipped("no QoS strategy in the NodeSLO")
        if not self._is_supported(snapshot.kernel):
            return skipped("the CPU has no cache and bandwidth allocation")
        try:
            cache = self._cache(snapshot)
        except (InvalidInput, ValueError) as error:
            return skipped(f"resctrl is not usable: {error}")
        problems: dict[str, str] = {}
        writes: list[Write] = []
        for group in GROUPS:
            for kind in (L3, MB):
                try:
                    line = policy_line(kind, strategy, group, cache, snapshot.kernel)
                except InvalidInput as error:
                    problems[f"{group} {kind}"] = str(error)
                    continue
                if line is not None:
                    writes.append(schemata_write(group, line))
        writes += self._tasks(snapshot, strategy, problems)
        notices: list[Notice] = []
        for group, pod in own_groups(snapshot).items():
            try:
                writes += pod_writes(group, pod, cache, snapshot.kernel)
            except InvalidInput as error:
                problems[pod.key] = str(error)
                notices.append(group_failed(pod, str(error)))
        # The file holds more than what is written to it, so the cache of the executor cannot judge it.
        batch = Batch.flat(*writes, cached=False)
        return Plan(batches=(batch,), notices=tuple(notices), trace={"writes": len(writes), "problems": problems})

    def _is_supported(self, kernel: KernelValues) -> bool:
        if self._supported is None:
            text = kernel.setting(CPUINFO)
            if text is None:
                return False
            self._supported = all(cpu_support(text))
            self._vendor = cpu_model(text).vendor
        return self._supported

    def _cache(self, snapshot: Snapshot) -> CacheFacts:
        mask = _text(snapshot.kernel, files.RESCTRL_CBM_MASK).strip()
        if not self._cache_ids:
            self._cache_ids = tuple(check_root(_text(snapshot.kernel, ROOT_SCHEMATA)))
        return CacheFacts(
            cbm=int(mask, 16),
            vendor=self._vendor,
            cache_ids=self._cache_ids,
            l3_count=len(index(snapshot.processors).by_l3),
        )

    def _tasks(self, snapshot: Snapshot, strategy: ResourceQOSStrategy, problems: dict[str, str]) -> Iterable[Write]:
        known: dict[str, set[int]] = {}
        for group, pod in _bound(snapshot, strategy):
            try:
                if group not in known:
                    known[group] = set(parse_tasks(_text(snapshot.kernel, resctrl_file(group, "tasks"))))
            except InvalidInput as error:
                problems[f"{group} tasks"] = str(error)
                continue
            yield from task_writes(group, new_tasks(pod, known[group], snapshot.kernel))


def _bound(snapshot: Snapshot, strategy: ResourceQOSStrategy) -> Iterable[tuple[str, PodState]]:
    """Yield the pods whose threads belong into a group, with the group."""
    own = {pod.uid for pod in own_groups(snapshot).values()}
    for pod in snapshot.pods:
        if pod.uid in own:
            continue
        group = _GROUP_OF.get(pod.qos)
        block = strategy.for_qos(pod.qos)
        resctrl = block.resctrl_qos if block else None
        if group is not None and pod.is_active and resctrl is not None and resctrl.enable is True:
            yield group, pod


def pod_writes(group: str, pod: PodState, cache: CacheFacts, kernel: KernelValues) -> list[Write]:
    """Return the lines and threads that a pod's own group lacks; raise InvalidInput when it cannot be read."""
    wanted = pod_schemata(annotation_of(pod), cache_ids=cache.cache_ids, cbm=cache.cbm, vendor=cache.vendor)
    if not wanted:
        return []
    present = parse_schemata(_text(kernel, resctrl_file(group, "schemata")))
    writes: list[Write] = []
    for kind, values in parse_schemata(wanted).items():
        if not all(_same(kind, present.get(kind, {}).get(cache_id, ""), value) for cache_id, value in values.items()):
            line = next(line for line in wanted.splitlines(keepends=True) if line.startswith(f"{kind}:"))
            writes.append(schemata_write(group, line))
    known = set(parse_tasks(_text(kernel, resctrl_file(group, "tasks"))))
    return [*writes, *task_writes(group, new_tasks(pod, known, kernel))]


def group_failed(pod: PodState, why: str) -> Notice:
    """Return what is told about a pod that has no group although it asks for one: it runs on, without."""
    message = f"no resctrl group of its own: {why}"
    return Notice(reason=GROUP_FAILED, message=message, namespace=pod.namespace, name=pod.name, uid=pod.uid)


def policy_line(
    kind: str, strategy: ResourceQOSStrategy | None, group: str, cache: CacheFacts, kernel: KernelValues
) -> str | None:
    """Return the schemata line of a group, None when there is nothing to write; raise when it cannot be made.

    What the group has is looked at only when there is a value to compare with.
    """
    block = strategy.for_qos(group) if strategy else None
    config = block.resctrl_qos if block else None
    value = _value(kind, config, cache) if config is not None else None
    if not value:
        return None
    present = parse_schemata(_text(kernel, resctrl_file(group, "schemata"))).get(kind, {})
    if len(cache.cache_ids) != cache.l3_count or len(present) != cache.l3_count:
        raise InvalidInput(
            f"{len(cache.cache_ids)} cache ids, {len(present)} in the group, {cache.l3_count} caches", field="schemata"
        )
    if all(_same(kind, present.get(str(cache_id), ""), value) for cache_id in cache.cache_ids):
        return None
    return schemata_line(kind, list(cache.cache_ids), value)


def schemata_write(group: str, line: str) -> Write:
    """Return the write of one schemata line."""
    return Write(file=resctrl_file(group, "schemata"), value=line, target=Target.SYSTEM, reason="UpdateResctrl")


def task_writes(group: str, tasks: Iterable[int]) -> list[Write]:
    """Return one write per thread, ascending, because the kernel takes one id at a time."""
    file = resctrl_file(group, "tasks")
    return [
        Write(file=file, value=str(task), target=Target.SYSTEM, reason="ApplyCatL3GroupTasks", level=5)
        for task in sorted(tasks)
    ]


def new_tasks(pod: PodState, known: Collection[int], kernel: KernelValues) -> list[int]:
    """Return the threads of a pod (containers, then sandbox) that are not in the group yet."""
    directories = [container.directory for container in pod.containers if container.directory]
    sandbox = sandbox_among(pod, kernel.children.get(pod.directory, ()))
    if sandbox is not None:
        directories.append(sandbox)
    return [task for directory in directories for task in threads_of(kernel, directory) if task not in known]


def _value(kind: str, config: ResctrlQOS, cache: CacheFacts) -> str | None:
    if kind == MB:
        return mba_value(config.mba_percent, cache.vendor)
    if config.cat_range_start_percent is None or config.cat_range_end_percent is None:
        return None
    return l3_mask(cache.cbm, config.cat_range_start_percent, config.cat_range_end_percent)


def _same(kind: str, current: str, wanted: str) -> bool:
    try:
        base = 16 if kind == L3 else 10
        return int(current, base) == int(wanted, base)
    except ValueError:
        return False


def _text(kernel: KernelValues, file: SystemFile) -> str:
    """Return the text of a resctrl file; raise InvalidInput when it could not be read."""
    text = kernel.setting(file)
    if text is None:
        raise InvalidInput(kernel.problem(file), field=file.path)
    return text


def threads_of(kernel: KernelValues, directory: str) -> list[int]:
    """Return the threads in a cgroup; none when it is gone."""
    try:
        return parse_tasks(kernel.text(files.TASKS, directory) or "")
    except InvalidInput:
        return []
