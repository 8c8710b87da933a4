"""The recommender of the original vertical autoscaler on the embedded cluster, and a hand-over to ours and back.

It needs the original's program, which none of kubetide's own tests can build: `vpa-recommender` (any 1.7) in
KUBEBUILDER_ASSETS or ~/.cache/kubetide/envtest.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from e2e.controlplane import find_program
from e2e.programs import KUBETIDE, embedded, program, until
from kubetide.api.objects.scheme import VPA_CHECKPOINTS, VPAS
from kubetide.api.values.quantity import parse_quantity
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError
from kubetide.testing.builders import make_vpa

SCENARIO = """
nodes: [{name: node}]
metrics: {interval: 3s, delay: 1s}
workloads:
- {name: steady, replicas: 2, requests: {cpu: 100m, memory: 64Mi}, memory: {base: 200Mi}}
- {name: greedy, requests: {cpu: 50m, memory: 128Mi}, limits: {memory: 192Mi}, memory: {base: 256Mi}}
"""
WORKLOADS = ("steady", "greedy")

Targets = dict[str, dict[str, str]]


class Observer:
    """What the administrator sees of the two VPAs."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def targets(self) -> Targets:
        found: Targets = {}
        for name in WORKLOADS:
            vpa = await self._client.get_raw(VPAS, name, namespace="default")
            given = (vpa.get("status") or {}).get("recommendation") or {}
            for entry in given.get("containerRecommendations") or ():
                found[name] = entry["target"]
        return found

    async def checkpoints(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in WORKLOADS:
            try:
                raw = await self._client.get_raw(VPA_CHECKPOINTS, f"{name}-main", namespace="default")
            except ApiError:
                continue
            found[name] = raw.get("status") or {}
        return found

    async def writes(self) -> tuple[str, ...]:
        return tuple(str(one.get("lastUpdateTime")) for one in (await self.checkpoints()).values())


def close(one: Targets, other: Targets, names: Iterable[str]) -> bool:
    """Whether two recommendations are no more than one bucket of the histograms apart."""
    ratios = [
        float(parse_quantity(one[name][resource]).nanos) / parse_quantity(other[name][resource]).nanos
        for name in names
        for resource in ("cpu", "memory")
    ]
    return all(1 / 1.06 < ratio < 1.06 for ratio in ratios)


@pytest.fixture
def original() -> Path:
    found = find_program("vpa-recommender")
    if found is None:
        pytest.skip("no vpa-recommender 1.7: put the original's program into ~/.cache/kubetide/envtest")
    return found


async def test_upstream_works_here_and_hands_over_to_ours_and_back(original: Path, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SCENARIO)
    async with embedded(tmp_path, f"--sim={scenario}") as (client, kubeconfig):
        flags = (
            f"--kubeconfig={kubeconfig}",
            "--recommender-interval=2s",
            "--leader-elect=false",
            "--address=127.0.0.1:0",
        )
        theirs, ours = (str(original), *flags), (*KUBETIDE, "run", "recommender", *flags)
        for name in WORKLOADS:
            vpa = make_vpa(name, target=name, mode="Off")
            await client.create(VPAS, vpa, namespace="default")
        observer = Observer(client)

        async def learned() -> bool:
            """Whether the usage of one and the kill of the other have been taken in, and saved."""
            found = await observer.targets()
            saved = (await observer.checkpoints()).get("steady", {})
            memory = {name: parse_quantity(target["memory"]).value for name, target in found.items()}
            return memory.get("greedy", 0) > 250 * 1024**2 and saved.get("totalSamplesCount", 0) >= 6

        with program(tmp_path / "original.log", *theirs):
            await until(learned, tmp_path / "original.log")
        before, written = await observer.targets(), await observer.writes()

        async def saved_again() -> bool:
            return all(new != old for new, old in zip(await observer.writes(), written, strict=True))

        # The original's checkpoint has no room for a kill in the running window: it forgets its own kills too.
        for log, command, kept in (("ours.log", ours, WORKLOADS), ("again.log", theirs, ("steady",))):
            with program(tmp_path / log, *command):
                await until(saved_again, tmp_path / log)
            now = await observer.targets()
            assert close(before, now, kept), f"{log}: {before} became {now}"
            samples = (await observer.checkpoints())["steady"]["totalSamplesCount"]
            assert samples >= 6, f"{log}: only {samples} samples are left"
            before, written = now, await observer.writes()
