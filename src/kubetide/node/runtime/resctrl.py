"""Makes resctrl usable: mounts it where the kernel has it and keeps the groups of the three classes and of pods.

A pod gets a group of its own when its sandbox is made, so that its containers are born into it, and at the latest by
the next sync of the strategy; the group goes when the sandbox is removed or the pod is no longer there. Hardware has
few groups, so a pod whose annotation gives no line gets none. Why a group could not be made is handed to the strategy,
which tells the pod.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from kubetide.clock import Clock
from kubetide.errors import InvalidInput
from kubetide.log import get_logger
from kubetide.node.core import files
from kubetide.node.core.files import resctrl_file
from kubetide.node.core.formats.cpu import cpu_model
from kubetide.node.core.hooks.context import PodRequest
from kubetide.node.core.kernel_values import named
from kubetide.node.core.layout import Layout
from kubetide.node.core.qos.l3_cache import check_root, cpu_support
from kubetide.node.core.qos.pod_resctrl import (
    GROUP_PREFIX,
    annotation_of,
    asked_for,
    group_of,
    own_groups,
    pod_schemata,
)
from kubetide.node.core.qos.resctrl import GROUPS
from kubetide.node.core.snapshot import Snapshot

log = get_logger("node.resctrl")

MOUNT_SECONDS = 5.0
UNKNOWN_SECONDS = 60.0
"""How long a group of a pod that the agent has not heard of yet is kept."""


class ResctrlFilesystem:
    """The resctrl file system of this machine. All of it runs on the worker that owns the host."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self.groups: frozenset[str] = frozenset()
        """Groups of single pods that exist."""
        self._layout = layout
        self._clock = clock
        self._supported: bool | None = None
        self._vendor = ""
        self._told = ""
        self._made: dict[str, float] = {}

    @property
    def _root(self) -> Path:
        return Path(self._layout.system_file(resctrl_file("", "schemata"))).parent

    def prepare(self, snapshot: Snapshot) -> Mapping[str, str]:
        """Mount resctrl if it is not there and make the groups; return why files of groups are missing."""
        if not self._is_supported():
            return {}
        root = self._root
        try:
            if not Path(self._layout.system_file(files.RESCTRL_CBM_MASK)).exists() and not _valid(root / "schemata"):
                command = ["mount", "-t", "resctrl", "-o", "relatime", "resctrl", str(root)]
                subprocess.run(command, check=True, capture_output=True, timeout=MOUNT_SECONDS)
                log.info("resctrl mounted", path=str(root))
            for group in GROUPS:
                (root / group).mkdir(exist_ok=True)
            return self._keep_own_groups(snapshot)
        except (OSError, subprocess.SubprocessError) as error:
            if str(error) != self._told:
                self._told = str(error)
                log.warning("resctrl is not usable", error=self._told)
            return {}

    def add_pod(self, pod: PodRequest) -> None:
        """Make the group of a pod whose sandbox is being made; a failure is left to the strategy's next sync."""
        text = asked_for(pod.annotations)
        if not text or not self._is_supported():
            return
        group = group_of(pod.uid)
        try:
            lines = self._lines(text)
            if not lines:
                return
            (self._root / group).mkdir(exist_ok=True)
            self._made[group] = self._clock.monotonic()
            for line in lines.splitlines(keepends=True):
                (self._root / group / "schemata").write_text(line, encoding="ascii")
        except (OSError, InvalidInput) as error:
            log.warning("resctrl group not made", pod=f"{pod.namespace}/{pod.name}", error=str(error))
            return
        self.groups |= {group}

    def remove_pod(self, uid: str) -> None:
        """Remove the group of a pod whose sandbox is removed."""
        group = group_of(uid)
        self._made.pop(group, None)
        if group in self.groups:
            (self._root / group).rmdir()
            self.groups -= {group}

    def _keep_own_groups(self, snapshot: Snapshot) -> dict[str, str]:
        """Make the groups of single pods and remove those whose pod is gone."""
        root, now = self._root, self._clock.monotonic()
        problems: dict[str, str] = {}
        found = {path.name for path in root.glob(f"{GROUP_PREFIX}*")}
        wanted: set[str] = set()
        for group, pod in own_groups(snapshot).items():
            try:
                if self._lines(annotation_of(pod)):
                    wanted.add(group)
            except InvalidInput:
                continue  # the strategy reads the same text and tells the pod
        self._made = {group: at for group, at in self._made.items() if now - at < UNKNOWN_SECONDS}
        for group in sorted(found - wanted - self._made.keys()):
            (root / group).rmdir()
            found.discard(group)
        for group in sorted(wanted - found):
            try:
                (root / group).mkdir()
                found.add(group)
            except OSError as error:
                problems[named(resctrl_file(group, "schemata"))] = f"{error.strerror or error}, making {group}"
        self.groups = frozenset(found)
        return problems

    def _lines(self, annotation: str) -> str:
        """Return the schemata that an annotation asks for on this machine; raise InvalidInput or OSError."""
        mask = Path(self._layout.system_file(files.RESCTRL_CBM_MASK)).read_text(encoding="ascii")
        cache_ids = check_root((self._root / "schemata").read_text(encoding="ascii"))
        return pod_schemata(annotation, cache_ids=cache_ids, cbm=int(mask.strip(), 16), vendor=self._vendor)

    def _is_supported(self) -> bool:
        if self._supported is None:
            try:
                text = Path(self._layout.proc("cpuinfo")).read_text(encoding="utf-8")
            except OSError:
                text = ""
            self._supported, self._vendor = all(cpu_support(text)), cpu_model(text).vendor
        return self._supported


def _valid(schemata: Path) -> bool:
    try:
        check_root(schemata.read_text(encoding="utf-8"))
    except (OSError, InvalidInput):
        return False
    return True
