"""An autoscaler at rest is not observed anew: every write and every answer has the same bytes as if it were."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kubetide.embedded.apiserver.storage.objects import LogEvent, ResourceKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Noisy, Step
from kubetide.hpa.resting import RestingAlone
from kubetide.hpa.settings import HpaSettings
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import autoscaler
from simulated.cluster import run

FOLLOWED, ASKED_FOR = HpaSettings(scale_watch_from=1), HpaSettings(scale_watch_from=0)
NAMES = ("calm", "steps", "high")
STEPS = {
    "calm": Step((), initial=100.0),
    "steps": Step(((1200.0, 220.0), (2400.0, 60.0)), initial=100.0),
    "high": Step((), initial=900.0),
}


def lived(settings: HpaSettings) -> tuple[list[bytes], list[bytes]]:
    """Return every write of an hour, and what is explained in the end."""

    async def main(cluster: SimCluster) -> tuple[list[bytes], list[bytes]]:
        writes: list[bytes] = []

        def heard(resource: ResourceKey, event: LogEvent) -> None:
            writes.append(f"{event.revision} {resource} {event.change} ".encode() + event.entry.encoded)

        cluster.api.store.listen(heard)
        for seed, name in enumerate(NAMES):
            await cluster.apply(make_deployment(name, replicas=4, cpu="500m", memory="64Mi"))
            await cluster.apply(make_hpa(name, target=name, maximum=8, minimum=2, cpu_percent=50))
            cluster.set_load("default", name, Noisy(STEPS[name], amount=0.1, seed=seed))
        async with autoscaler(cluster, settings) as running:
            await cluster.run_for(timedelta(hours=1))
            explained = [running.controller.explain("hpa", f"default/{name}") for name in NAMES]
        return writes, [msgspec.json.encode(one) for one in explained]

    return run(main, nodes=6)


@pytest.mark.parametrize("settings", [FOLLOWED, ASKED_FOR], ids=["followed", "asked-for"])
def test_every_write_is_that_of_a_reconcile_that_observes(
    settings: HpaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, rested = RestingAlone.judge, 0

    def counted(self: RestingAlone, *arguments: Any) -> object:
        nonlocal rested
        found = judge(self, *arguments)
        rested += found is not None
        return found

    def nothing(*_: object) -> None:
        return None

    # Who is looked after at a moment draws its jitter in another order than who is handed to the queue.
    for module in ("controller", "resting"):
        monkeypatch.setattr(f"kubetide.hpa.{module}.JITTER", (1.0, 1.0))
    monkeypatch.setattr(RestingAlone, "judge", counted)
    alone = lived(settings)
    assert rested > 400  # of 720 reconciles
    monkeypatch.setattr(RestingAlone, "judge", nothing)
    observed = lived(settings)
    assert alone == observed
    assert len(alone[0]) > 500
