"""What learned sizes cost the recommender: CPU and memory of an hour of loops, with and without them.

    python benchmarks/learned_sizes.py [--vpas 10000] [--containers 100000] [--loops 60] [--minutes 1] [--numbers 1]

Only what decides is counted: samples into histograms, recommendations in every loop, checkpoints every twenty minutes,
and with `--estimator=adaptive` what is noted, decided and saved beside it. Reading and writing the API, which is most
of a loop in a cluster and nearly the same for both, is left out, so the ratio is worse than it is there. Each estimator
runs in a process of its own; times are CPU seconds. With `--loops 6 --minutes 15` the memory of the largest fleets is
seen in a tenth of the time: an hour is closed and decided, only the CPU of its other loops is missing. With
`--numbers 2` pods have no limits, so that memory is sized by request and limit apart.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import IN_PLACE_OR_RECREATE
from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import parse_selector
from kubetide.testing.builders import make_pod
from kubetide.vpa.core.learned import Choice, ChosenBy, Estimator
from kubetide.vpa.recommender.core.adaptive.learned import LearnedSizes
from kubetide.vpa.recommender.core.adaptive.saved import state_text
from kubetide.vpa.recommender.core.checkpoint import checkpoints
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import Options, recommend
from kubetide.vpa.recommender.core.usage.feeding import UsageBatch, feed

START = datetime(2026, 1, 5, 0, 30, tzinfo=UTC)
CONTAINERS = ("app", "proxy")
CHECKPOINT_LOOPS = 20


def filled(vpas: int, containers: int, estimator: Estimator) -> Model:
    """Return a model of equal workloads."""
    model = Model()
    pods = containers // len(CONTAINERS) // vpas
    for number in range(vpas):
        key = ObjectKey(f"team-{number % 50}", f"web-{number}")
        labels = {"app": key.name}
        state = model.set_vpa(
            VpaState(key, parse_selector(f"app={key.name}"), created=START, mode=IN_PLACE_OR_RECREATE, loaded=True),
            keep_history=False,
        )
        state.choice = Choice(estimator, ChosenBy.FLAG)
        for pod in range(pods):
            name = ObjectKey(key.namespace, f"{key.name}-{pod}")
            model.set_pod(name, labels, "Running", now=START)
            for container in CONTAINERS:
                model.set_container(name, container, now=START)
    return model


def measure(vpas: int, containers: int, loops: int, minutes: int, numbers: int, estimator: Estimator) -> dict[str, Any]:
    """Run an hour of loops."""
    model, rng, options = filled(vpas, containers, estimator), np.random.default_rng(1), Options()
    pod = convert(make_pod("web", containers=[{"name": name} for name in CONTAINERS]), Pod) if numbers == 2 else None
    learned = LearnedSizes(model, options, lambda key: pod)
    rows = np.array([row for pod in model.pods.values() for row in pod.containers.values()], dtype=np.int64)
    level = rng.random(rows.size) * 900.0 + 100.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    parts = {"learn": 0.0, "recommend": 0.0, "save": 0.0}
    states = list(model.vpas.values())
    for loop in range(loops):
        now = START + timedelta(minutes=loop * minutes)
        times = np.full(rows.size, int(now.timestamp()) * 1_000_000, dtype=np.int64)
        cpu = (level * (0.8 + 0.4 * rng.random(rows.size))).astype(np.int64)
        batch = UsageBatch(rows, times, cpu, cpu * 2**20)
        started = time.process_time()
        learned.begin_loop(now)
        slots = model.containers.aggregate[batch.rows]
        fed = feed(model, batch)
        if estimator is not Estimator.VPA:
            amounts = batch.memory[fed.memory].astype(np.float64)
            learned.add(slots[fed.cpu], batch.cpu[fed.cpu] / 1000.0, slots[fed.memory], amounts)
        noted = time.process_time()
        recommend(model, states, options, remember=True, learned=learned.apply)
        recommended = time.process_time()
        if loop % CHECKPOINT_LOOPS == CHECKPOINT_LOOPS - 1:
            for start in range(0, len(states), 500):
                part = states[start : start + 500]
                checkpoints(model, part, now=now, stored=lambda key, container, mark: False)
                for vpa in part:
                    for container in vpa.fed():
                        if (state := learned.state(vpa.key, container)) is not None:
                            state_text(state)
        parts["learn"] += noted - started
        parts["recommend"] += recommended - noted
        parts["save"] += time.process_time() - recommended
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "seconds": sum(parts.values()),
        "parts": parts,
        "megabytes": grown / 1024,
        "columns": len(learned.shares) * 2,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vpas", type=int, default=10_000)
    parser.add_argument("--containers", type=int, default=100_000)
    parser.add_argument("--loops", type=int, default=60)
    parser.add_argument("--minutes", type=int, default=1, help="between two loops")
    parser.add_argument("--numbers", type=int, choices=(1, 2), default=1, help="that memory is sized by")
    parser.add_argument("--estimator", type=Estimator, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.estimator is not None:
        print(
            json.dumps(
                measure(given.vpas, given.containers, given.loops, given.minutes, given.numbers, given.estimator)
            )
        )
        return
    found = {}
    for estimator in (Estimator.VPA, Estimator.ADAPTIVE):
        command = [sys.executable, __file__, "--estimator", estimator.value]
        command += ["--vpas", str(given.vpas), "--containers", str(given.containers), "--loops", str(given.loops)]
        command += ["--minutes", str(given.minutes), "--numbers", str(given.numbers)]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        found[estimator] = json.loads(result.stdout)
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found[estimator]["parts"].items())
        seconds, megabytes = found[estimator]["seconds"], found[estimator]["megabytes"]
        print(f"{estimator:<10} {seconds:7.1f} s CPU ({parts}), {megabytes:6.0f} MB")
    plain, adaptive = found[Estimator.VPA], found[Estimator.ADAPTIVE]
    ratios = [adaptive[name] / plain[name] for name in ("seconds", "megabytes")]
    print(f"ratio      {ratios[0]:7.2f}, memory {ratios[1]:.2f}")


if __name__ == "__main__":
    main()
