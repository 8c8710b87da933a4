"""Pressure stall information of containers and pods: percent of time stalled on CPU, memory and I/O.

The 10 s averages are stored; telemetry shows all three. `full` pressure of CPU is shown only where the kernel has it,
and a `some` line that a file lacks is not stored as "no pressure".
"""

from collections.abc import Iterator

from kubetide.node.collectors.base import READ_ERRORS, BaseCollector, Context, skips
from kubetide.node.core.formats.psi import Pressure, PressureLine
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Key
from kubetide.node.core.series.store import key_of
from kubetide.node.host.detect import has_pressure
from kubetide.node.host.readers import CgroupPressure
from kubetide.node.telemetry import RoundGauge

PRECISION = "10"
_POD_LABELS = ("node", "pod_uid", "pod_namespace", "pod_name")
_PSI_LABELS = ("psi_resource_type", "psi_precision", "psi_degree", "cpu_full_supported")


def resources(pressure: CgroupPressure) -> tuple[tuple[str, Pressure], ...]:
    """Return the three resources by their label."""
    return (("cpu", pressure.cpu), ("mem", pressure.memory), ("io", pressure.io))


def _degrees(pressure: CgroupPressure) -> Iterator[tuple[str, str, PressureLine, bool]]:
    for name, one in resources(pressure):
        yield name, "some", one.some, one.some_supported
        yield name, "full", one.full, one.full_supported


class PressureCollector(BaseCollector):
    """Samples `container_psi` and `pod_psi`."""

    name = "PSICollector"

    def __init__(self, context: Context, interval: float) -> None:
        super().__init__(context, interval)
        self._reader = context.reader
        telemetry = context.telemetry
        self._pod_gauge = RoundGauge(
            telemetry.gauge("koordlet_pod_psi", "Pressure of a pod.", (*_POD_LABELS, *_PSI_LABELS))
        )
        self._container_gauge = RoundGauge(
            telemetry.gauge(
                "koordlet_container_psi",
                "Pressure of a container.",
                (*_POD_LABELS, "container_id", "container_name", *_PSI_LABELS),
            )
        )

    def collect(self) -> bool:
        """Read containers and pods; a kernel without the files leaves nothing to do."""
        if not has_pressure(self.context.host, self.context.layout):
            return True
        self._pod_gauge.begin()
        self._container_gauge.begin()
        samples: list[tuple[Key, float]] = []
        for pod in self.context.pods():
            uid = (kinds.POD_UID, pod.uid)
            labels = (self.context.node_name, pod.uid, pod.namespace, pod.name)
            try:
                pressure = self._reader.pressure(pod.directory)
            except READ_ERRORS as error:
                skips(pod, error)
                continue
            for container in pod.containers:
                if not container.directory:
                    continue
                try:
                    inner = self._reader.pressure(container.directory)
                except READ_ERRORS as error:
                    skips(pod, error)
                    continue
                identity = (kinds.CONTAINER_ID, container.id)
                samples += self._samples(kinds.CONTAINER_PSI, (identity, uid), inner)
                supported = float(inner.cpu.full_supported)
                samples.append((key_of(kinds.CONTAINER_PSI_CPU_FULL, identity, uid), supported))
                for tail, value in _shown(inner):
                    self._container_gauge.set((*labels, container.id, container.name, *tail), value)
            samples += self._samples(kinds.POD_PSI, (uid,), pressure)
            samples.append((key_of(kinds.POD_PSI_CPU_FULL, uid), float(pressure.cpu.full_supported)))
            for tail, value in _shown(pressure):
                self._pod_gauge.set((*labels, *tail), value)
        self._pod_gauge.end()
        self._container_gauge.end()
        self.store(samples)
        return True

    def _samples(
        self, kind: str, who: tuple[tuple[str, str], ...], pressure: CgroupPressure
    ) -> list[tuple[Key, float]]:
        return [
            (
                key_of(kind, *who, ("psi_resource", name), ("psi_precision", PRECISION), ("psi_degree", degree)),
                line.avg10,
            )
            for name, degree, line, supported in _degrees(pressure)
            if supported or degree == "full"
        ]


def _shown(pressure: CgroupPressure) -> Iterator[tuple[tuple[str, str, str, str], float]]:
    full_cpu = str(pressure.cpu.full_supported).lower()
    for name, degree, line, supported in _degrees(pressure):
        if supported:
            for precision, value in (("avg10", line.avg10), ("avg60", line.avg60), ("avg300", line.avg300)):
                yield (name, precision, degree, full_cpu), value
