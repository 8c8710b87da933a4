"""Keeps the Device object of this node: its GPUs, where they sit and whether they are healthy.

The GPUs are looked at every few seconds; the object only when they changed, and once a minute because others may have
changed it.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kubetide.api.objects.core import Node
from kubetide.api.objects.meta import TypedObject
from kubetide.api.objects.scheme import Resource
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, Conflict, NotFound
from kubetide.log import get_logger
from kubetide.node.core.formats.storage import pcie_root
from kubetide.node.core.layout import Layout
from kubetide.node.core.report import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from kubetide.node.host.protocol import Host
from kubetide.node.host.worker import Inline, Worker
from kubetide.node.runtime.nvml import GpuDevice, GpuSource
from kubetide.node.state.objects import metadata_below

log = get_logger("node.devices")

RAW_DEVICES: Resource[TypedObject] = Resource(
    "scheduling.koordinator.sh", "v1alpha1", "devices", "Device", TypedObject, namespaced=False
)
LABEL_MODEL = "node.koordinator.sh/gpu-model"
LABEL_DRIVER = "node.koordinator.sh/gpu-driver-version"
INTERVAL = timedelta(seconds=3)
ROUNDS_BETWEEN_LOOKS = 20


class DeviceReporter:
    """Creates and updates the Device object."""

    name = "devices"

    def __init__(
        self,
        client: Client,
        host: Host,
        layout: Layout,
        gpus: GpuSource,
        node_name: str,
        node: Callable[[], Node | None],
        kernel: Worker | None = None,
    ) -> None:
        self._client = client
        self._host = host
        self._layout = layout
        self._gpus = gpus
        self._node_name = node_name
        self._node = node
        self._kernel = kernel or Inline()
        self._problem = ""
        self._reported: tuple[list[dict[str, Any]], dict[str, str]] | None = None
        self._rounds = 0

    def ready(self) -> bool:
        """Nothing waits for it."""
        return True

    def healthy(self) -> bool:
        """It repairs itself."""
        return True

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            try:
                await self.round()
                self._problem = ""
            except KubetideError as error:
                if self._problem != str(error):
                    self._problem = str(error)
                    log.warning("devices not reported", error=self._problem)
            await asyncio.sleep(INTERVAL.total_seconds())

    async def round(self) -> None:
        """Write the object if devices or labels differ."""
        devices, labels = await self._kernel.call(self.describe, "reading the GPUs")
        self._rounds += 1
        if not devices or (self._reported == (devices, labels) and self._rounds < ROUNDS_BETWEEN_LOOKS):
            return
        self._reported, self._rounds = None, 0
        if await self._write(devices, labels):
            self._reported = (devices, labels)

    async def _write(self, devices: list[dict[str, Any]], labels: dict[str, str]) -> bool:
        """Make the object say this; return whether it does now."""
        try:
            current = await self._client.get_raw(RAW_DEVICES, self._node_name)
        except NotFound:
            await self._create(devices, labels)
            return False
        old_labels = current["metadata"].get("labels") or {}
        same_labels = all(old_labels.get(name) == value for name, value in labels.items())
        if same_labels and (current.get("spec") or {}).get("devices") == devices:
            return True
        body = {
            **current,
            "metadata": {**current["metadata"], "labels": {**old_labels, **labels}},
            "spec": {**(current.get("spec") or {}), "devices": devices},
        }
        try:
            await self._client.update(RAW_DEVICES, self._node_name, body)
        except Conflict:
            return False  # the next sync sees the fresh object
        return True

    async def _create(self, devices: list[dict[str, Any]], labels: dict[str, str]) -> None:
        body = {
            "apiVersion": RAW_DEVICES.api_version,
            "kind": RAW_DEVICES.kind,
            "metadata": metadata_below(self._node(), self._node_name, labels),
            "spec": {"devices": devices},
        }
        try:
            await self._client.create(RAW_DEVICES, body)
        except AlreadyExists:
            return

    def describe(self) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """Return the devices, by minor number, and the labels of the object."""
        unhealthy = self._gpus.unhealthy()
        found = sorted(self._gpus.devices(), key=lambda device: device.minor)
        devices = [self._device(device, healthy=device.uuid not in unhealthy) for device in found]
        labels: dict[str, str] = {}
        # A GPU that does not tell its model says nothing about the others; two models have no common label.
        models = {device.name for device in found if device.name}
        if len(models) == 1:
            labels[LABEL_MODEL] = models.pop().removeprefix("NVIDIA ").replace(" ", "-")
        version = self._gpus.driver_version()
        if version:
            labels[LABEL_DRIVER] = version
        return devices, labels

    def _device(self, device: GpuDevice, *, healthy: bool) -> dict[str, Any]:
        described: dict[str, Any] = {
            "type": "gpu",
            "id": device.uuid,
            "minor": device.minor,
            "health": healthy,
            "resources": {GPU_CORE: "100", GPU_MEMORY: str(device.memory_total), GPU_MEMORY_RATIO: "100"},
        }
        place = self._layout.sys("bus/pci/devices", device.bus_id)
        real_path = getattr(self._host, "real_path", None)
        root = pcie_root(real_path(place)) if real_path is not None else ""
        if root and device.bus_id:
            described["topology"] = {
                "socketID": -1,
                "nodeID": self._numa_node(place),
                "pcieID": root,
                "busID": device.bus_id,
            }
        return described

    def _numa_node(self, place: str) -> int:
        try:
            return max(int(self._host.read(f"{place}/numa_node").strip()), 0)
        except (OSError, ValueError):
            return 0
