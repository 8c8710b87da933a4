"""What happens in a simulated cluster with every controller at work, as one digest per simulated hour.

    python tests/soak/recording.py --hours 24 [--last-bit -1|0|1] [--log FILE]

Counted is every change of every object, byte by byte and in order: two runs with the same digests made the same
decisions at the same moments. With `--log` the changes are written down, so that two runs which differ can be compared.
"""

import argparse
import asyncio
import hashlib
import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lastbit import another_cpu


async def record(hours: int, log: IO[bytes] | None) -> None:
    """Run the web shop with every controller; print one line for each hour."""
    import msgspec

    from kubetide.cli.demo.controllers import ALL, Controllers
    from kubetide.cli.demo.day import AGENT_INTERVAL
    from kubetide.embedded.sim import scenarios
    from kubetide.embedded.sim.cluster import SimCluster

    scenario = scenarios.load("webshop")
    digest, changes = hashlib.sha256(), 0

    def changed(resource: object, old: object, new: object) -> None:
        nonlocal changes
        changes += 1
        line = msgspec.json.encode([cluster.elapsed(), str(resource), new if new is not None else old, new is None])
        digest.update(line)
        if log is not None:
            log.write(line + b"\n")

    async with SimCluster(scenario, seed=scenario.seed) as cluster:
        cluster.world.on_any(changed)
        async with Controllers().at_work(cluster, ALL, agent_interval=AGENT_INTERVAL):
            for hour in range(1, hours + 1):
                await asyncio.sleep(timedelta(hours=1).total_seconds())
                print(f"{hour:3} h  {changes:8} changes  {digest.hexdigest()}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--last-bit", type=int, choices=(-1, 0, 1), default=0, help="be another CPU (tests/lastbit.py)")
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    # Before kubetide is imported: what its modules compute once belongs to the other CPU, too.
    with another_cpu(given.last_bit), given.log.open("wb") if given.log else nullcontext() as log:
        from kubetide.embedded.sim import scenarios
        from kubetide.embedded.sim.time.loop import run_virtual

        run_virtual(record(given.hours, log), start=scenarios.load("webshop").start)


if __name__ == "__main__":
    main()
