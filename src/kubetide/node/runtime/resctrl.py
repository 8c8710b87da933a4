"""Makes resctrl usable: mounts it where the kernel has it and makes the groups of the three classes and of pods."""

import subprocess
from collections.abc import Collection
from pathlib import Path

from kubetide.errors import InvalidInput
from kubetide.log import get_logger
from kubetide.node.core import files
from kubetide.node.core.files import resctrl_file
from kubetide.node.core.layout import Layout
from kubetide.node.core.qos.l3_cache import check_root, cpu_support
from kubetide.node.core.qos.pod_resctrl import GROUP_PREFIX, own_groups
from kubetide.node.core.qos.resctrl import GROUPS
from kubetide.node.core.snapshot import Snapshot

log = get_logger("node.resctrl")

MOUNT_SECONDS = 5.0


class ResctrlFilesystem:
    """The resctrl file system of this machine."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._supported: bool | None = None
        self._told = ""

    def prepare(self, snapshot: Snapshot) -> None:
        """Mount resctrl if it is not there and make the groups; a machine without it is left alone."""
        if not self._is_supported():
            return
        root = Path(self._layout.system_file(resctrl_file("", "schemata"))).parent
        try:
            if not Path(self._layout.system_file(files.RESCTRL_CBM_MASK)).exists() and not _valid(root / "schemata"):
                command = ["mount", "-t", "resctrl", "-o", "relatime", "resctrl", str(root)]
                subprocess.run(command, check=True, capture_output=True, timeout=MOUNT_SECONDS)
                log.info("resctrl mounted", path=str(root))
            for group in GROUPS:
                (root / group).mkdir(exist_ok=True)
            _keep_own_groups(root, own_groups(snapshot))
        except (OSError, subprocess.SubprocessError) as error:
            if str(error) != self._told:
                self._told = str(error)
                log.warning("resctrl is not usable", error=self._told)

    def _is_supported(self) -> bool:
        if self._supported is None:
            try:
                self._supported = all(cpu_support(Path(self._layout.proc("cpuinfo")).read_text(encoding="utf-8")))
            except OSError:
                self._supported = False
        return self._supported


def _keep_own_groups(root: Path, wanted: Collection[str]) -> None:
    """Make the groups of single pods and remove those whose pod is gone; hardware has few of them."""
    found = {path.name for path in root.glob(f"{GROUP_PREFIX}*")}
    for group in sorted(found - set(wanted)):
        (root / group).rmdir()
    for group in sorted(set(wanted) - found):
        (root / group).mkdir()


def _valid(schemata: Path) -> bool:
    try:
        check_root(schemata.read_text(encoding="utf-8"))
    except (OSError, InvalidInput):
        return False
    return True
