"""What looking for memory that runs out costs a node: `python benchmarks/memory_watch.py [--containers 250]` (as root).

So many containers of real cgroups with a limit each are looked at, all of them far from it, then all near it, which is
the worst case. Given is the CPU time of one look at all of them; an agent takes one a second.
"""

import argparse
import sys
import time
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kernel.tree import Tree, cgroup_tree, why_not
from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.clock import SystemClock
from kubetide.node.core.snapshot import PodState, pod_state
from kubetide.node.host.readers import CgroupReader
from kubetide.node.memory_watch import MemoryWatch

LIMIT = 256 * 2**20


def pod(tree: Tree, number: int) -> PodState:
    """Make a pod with one container that has a limit."""
    uid = f"pod-{number}"
    directory = f"{tree.pod(uid, 'Burstable', 'main')}/main"
    name, middle = ("memory.limit_in_bytes", "memory") if tree.version == 1 else ("memory.max", "")
    (tree.root / middle / directory / name).write_text(str(LIMIT))
    running = {"name": "main", "containerID": "containerd://main", "state": {"running": {}}}
    raw = {
        "metadata": {"name": uid, "namespace": "test", "uid": uid},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [running]},
    }
    return pod_state(convert(raw, Pod), tree.paths)


def cost(watch: MemoryWatch, pods: tuple[PodState, ...], looks: int = 30) -> float:
    """Return the CPU time of one look in milliseconds."""
    watch.look(pods)
    began = time.process_time()
    for _ in range(looks):
        watch.look(pods)
    return (time.process_time() - began) / looks * 1e3


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--containers", type=int, default=250)
    count = parser.parse_args().containers
    if reason := why_not():
        sys.exit(reason)
    with cgroup_tree() as tree:
        tree.tiers()
        pods = tuple(pod(tree, number) for number in range(count))
        watch = MemoryWatch(CgroupReader(tree.host, tree.layout), SystemClock())
        far = cost(watch, pods)
        # With nothing in them, cgroups are near a limit only if every usage counts as near.
        with patch("kubetide.node.memory_watch.LOOKED_AT", -1.0):
            near = cost(watch, pods)
        print(
            f"cgroup v{tree.version}, {count} containers: {far:.1f} ms a look far from limits, {near:.1f} ms near them"
        )
