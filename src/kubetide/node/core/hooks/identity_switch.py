"""The kernel's switch of group identity: when it is turned, and what happens to values behind it.

Group identity and core scheduling both decide who may share a core, and kernels take one of them. From 1.5 on the one
that a NodeSLO chooses switches the other off first:

    group identity in use       kernel.sched_core off, then kernel.sched_group_identity_enabled on
    core scheduling in use      kernel.sched_group_identity_enabled off, then kernel.sched_core on
    neither                     switches stay; while group identity is on, its values are set back to 0 once,
                                in every directory, also of pods that the agent does not know

While group identity is off its files are left alone: nobody looks at them. A kernel without the switch has group
identity as long as it has the file. Before 1.5 the hook just switches it on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kubetide.api.qos.cgroups import KUBE_QOS_CLASSES, join
from kubetide.node.core import files
from kubetide.node.core.compat import IDENTITY_OR_CORE_SCHED
from kubetide.node.core.files import SystemFile
from kubetide.node.core.hooks import core_sched, group_identity
from kubetide.node.core.outcomes import Outcomes
from kubetide.node.core.plan import Batch, Plan, Subject, Target, Write
from kubetide.node.core.snapshot import Snapshot

REASON = "GroupIdentity"
ON, OFF = "1", "0"


@dataclass(slots=True)
class IdentitySwitch:
    """Which of both is on, and whether values of group identity are left behind."""

    ready: bool = False
    """Whether values of group identity may be written."""
    sweeping: bool = False
    """Whether values are set back in every directory; what is there is read before the next pass."""
    _swept: bool = False

    def plan(self, snapshot: Snapshot, *, cores: bool) -> Plan:
        """Return the switches that must be turned before any value; `cores` says whether core scheduling may run."""
        kernel = snapshot.kernel
        text = kernel.setting(files.SCHED_GROUP_IDENTITY)
        switch = None if text is None else text.strip()
        self.ready = bool(kernel.has(files.CPU_BVT, snapshot.paths.kube_root)) if switch is None else switch == ON
        self.sweeping = False
        if switch is None:
            return Plan()
        if not snapshot.compat.has(IDENTITY_OR_CORE_SCHED):
            return self._turned(snapshot, [(files.SCHED_GROUP_IDENTITY, ON)] if switch != ON else [])
        if snapshot.slo is None:
            return Plan()
        core = (kernel.setting(files.SCHED_CORE) or "").strip()
        if group_identity.rule_from(snapshot.slo).enable:
            self._swept = False
            wanted = [(files.SCHED_CORE, OFF)] if core == ON else []
            return self._turned(snapshot, [*wanted, *([(files.SCHED_GROUP_IDENTITY, ON)] if switch != ON else [])])
        if cores and core_sched.rule_from(snapshot.slo).enabled:
            wanted = [(files.SCHED_GROUP_IDENTITY, OFF)] if switch == ON else []
            self.ready = False
            return self._turned(snapshot, [*wanted, *([(files.SCHED_CORE, ON)] if core == OFF else [])])
        self.sweeping = self.ready and not self._swept
        return Plan()

    def turned(self, outcomes: Outcomes) -> None:
        """Learn whether group identity is on now; while that is not sure, none of its values is written."""
        for outcome in outcomes:
            if outcome.write.file is files.SCHED_GROUP_IDENTITY:
                self.ready = outcome.in_force and outcome.write.value == ON
            elif outcome.failed:
                self.ready = False

    def sweep(self, snapshot: Snapshot) -> list[Write]:
        """Return the writes that set every directory back, from the tiers down; none before their tree was read."""
        tiers = {snapshot.paths.tier(name): None for name in KUBE_QOS_CLASSES}
        if not self.sweeping or not all(tier in snapshot.kernel.children for tier in tiers):
            return []
        places = list(_below(snapshot, tuple(tiers)))
        return [
            *(_neutral(tier, Target.TIER) for tier in tiers),
            *(_neutral(place, Target.POD) for place in places),
            *(
                _neutral(join(place, name), Target.CONTAINER)
                for place in places
                for name in snapshot.kernel.children.get(place, ())
            ),
        ]

    def swept(self, outcomes: Outcomes) -> None:
        """Learn whether every directory was set back."""
        mine = [outcome for outcome in outcomes if isinstance(outcome.write.effect, Neutral)]
        if mine and not any(outcome.failed for outcome in mine):
            self._swept = True

    def _turned(self, snapshot: Snapshot, wanted: list[tuple[SystemFile, str]]) -> Plan:
        subject = Subject(type="node", name=snapshot.node.metadata.name if snapshot.node else "")
        writes = [
            Write(file=file, value=value, target=Target.SYSTEM, reason=REASON, subject=subject)
            for file, value in wanted
        ]
        return Plan(batches=(Batch.flat(*writes, cached=False),)) if writes else Plan()


class Neutral:
    """The effect of setting a directory back."""


_NEUTRAL = Neutral()


def _neutral(directory: str, target: Target) -> Write:
    return Write(file=files.CPU_BVT, value="0", directory=directory, target=target, reason=REASON, effect=_NEUTRAL)


def _below(snapshot: Snapshot, tiers: tuple[str, ...]) -> Iterator[str]:
    """Yield the directories of pods below the tiers; the tiers themselves lie below the first one."""
    for tier in tiers:
        for name in snapshot.kernel.children[tier]:
            if (place := join(tier, name)) not in tiers:
                yield place
