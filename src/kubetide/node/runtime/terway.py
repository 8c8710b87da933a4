"""Network QoS by terway-qos: two files for the daemon of that name, kept as the NodeSLO and the pods say.

Written only while the NodeSLO chooses this policy, and removed when it chooses another one. A rate that cannot be used
leaves both files as they are; a pod whose annotation cannot be used is left out. Both are reported once until they
change.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from kubetide.errors import InvalidInput
from kubetide.log import get_logger
from kubetide.node.core.hooks import network
from kubetide.node.core.snapshot import Snapshot
from kubetide.node.host.worker import Worker

log = get_logger("node.network")

GATE = "TerwayQoS"
NODE_FILE, PODS_FILE = "global_bps_config", "pod.json"
INTERVAL_SECONDS = 10.0


class TerwayFiles:
    """Keeps the two files of one node."""

    def __init__(self, directory: Path, snapshot: Callable[[], Snapshot], disk: Worker) -> None:
        self.name = "terway-qos"
        self._directory = directory
        self._snapshot = snapshot
        self._disk = disk
        self._told = ""
        self._written: Mapping[str, str] | None = None

    def ready(self) -> bool:
        """Nothing waits for it."""
        return True

    def healthy(self) -> bool:
        """A failing pass is reported and tried again."""
        return True

    async def run(self) -> None:
        """Keep the files until cancelled."""
        while True:
            await self.sync()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def sync(self) -> None:
        """Write or remove the files once."""
        snapshot = self._snapshot()
        if snapshot.slo is None:
            return
        wanted: dict[str, str] = {}
        problem = ""
        try:
            if network.policy_of(snapshot.slo) == network.TERWAY:
                bandwidth = network.node_bandwidth(snapshot.slo)
                pods, problems = network.terway_pods(snapshot.pods)
                wanted = {NODE_FILE: network.terway_text(bandwidth), PODS_FILE: pods}
                problem = "; ".join(problems)
            if wanted != self._written:
                await self._disk.call(partial(self._put, wanted), "writing files for terway-qos")
                self._written = wanted
        except (InvalidInput, OSError) as error:
            problem = str(error)
        if problem and problem != self._told:
            log.warning("network QoS not complete", problem=problem)
        self._told = problem

    def _put(self, wanted: Mapping[str, str]) -> None:
        """Replace each file in one step, so that the daemon never reads half of it."""
        for name in (NODE_FILE, PODS_FILE):
            target = self._directory / name
            if name not in wanted:
                target.unlink(missing_ok=True)
                continue
            self._directory.mkdir(parents=True, exist_ok=True)
            draft = target.with_name(f".{name}.tmp")
            draft.write_text(wanted[name], encoding="utf-8")
            os.replace(draft, target)
