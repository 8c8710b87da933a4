"""Disks, partitions, volume groups and mount points of the node.

Nodes without LVM are common: a missing or failing `vgs` or `lvs` leaves its map empty and is reported once. Only
`lsblk` and `findmnt` can fail a sync.
"""

from collections.abc import Callable, Sequence

from kubetide.errors import KubetideError
from kubetide.node.collectors.base import BaseCollector, Context, log
from kubetide.node.core.formats import storage
from kubetide.node.core.formats.storage import StorageFacts
from kubetide.node.host.protocol import Commands


class StorageCollector(BaseCollector):
    """Keeps the storage facts in the store."""

    name = "NodeStorageInfoCollector"

    def __init__(self, context: Context, interval: float, commands: Commands) -> None:
        super().__init__(context, interval)
        self._commands = commands
        self._told: set[str] = set()
        self._status = context.telemetry.counter(
            "koordlet_collect_node_local_storage_info_status", "Syncs of disk facts.", ("node", "status")
        )

    def collect(self) -> bool:
        """Run the four tools."""
        try:
            facts = self._read_blocks()
            facts = self._optional(storage.VGS, storage.read_vgs, facts)
            facts = self._optional(storage.LVS, storage.read_lvs, facts)
            facts = storage.read_findmnt(self._commands.run(storage.FINDMNT), facts)
        except (OSError, KubetideError) as error:
            self._status.labels(self.context.node_name, "failed").inc()
            if "sync" not in self._told:
                self._told.add("sync")
                log.warning("disks not read", error=str(error))
            return False
        self._status.labels(self.context.node_name, "succeeded").inc()
        self.context.store.facts.storage = facts
        return True

    def _read_blocks(self) -> StorageFacts:
        try:
            return storage.read_lsblk(self._commands.run(storage.LSBLK), StorageFacts())
        except (OSError, KubetideError):
            # An lsblk without the column for the parent.
            return storage.read_lsblk(self._commands.run(storage.LSBLK_PLAIN), StorageFacts())

    def _optional(
        self,
        command: Sequence[str],
        read: Callable[[str, StorageFacts], StorageFacts],
        facts: StorageFacts,
    ) -> StorageFacts:
        try:
            return read(self._commands.run(command), facts)
        except (OSError, KubetideError) as error:
            if command[0] not in self._told:
                self._told.add(command[0])
                log.info("no volume groups or logical volumes", tool=command[0], error=str(error))
            return facts
