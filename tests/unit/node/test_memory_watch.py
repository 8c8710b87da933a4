"""Looking at memory second by second: one small file far from the limit, everything near it, and no alarm for cache."""

from typing import Any

from kubetide.node.host.readers import CgroupReader
from kubetide.node.memory_watch import MemoryWatch
from nodeworld import World

MIB = 2**20


def node_with(version: int = 2) -> tuple[World, str]:
    """Return a node that runs one container, and its cgroup."""
    node = World(version=version)
    running = {"name": "main", "containerID": "containerd://abc", "state": {"running": {}}}
    pod = node.add_pod(
        {
            "metadata": {"name": "web-1", "namespace": "default", "uid": "u"},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": "Running", "containerStatuses": [running]},
        }
    )
    return node, pod.containers[0].directory


def put(node: World, directory: str, usage: int, *, file: int = 0, limit: str = str(512 * MIB), **more: str) -> None:
    stat = {"anon": 1, "file": 1, "inactive_file": file, "active_file": 0, "inactive_anon": 0, "active_anon": 1}
    files = {
        "memory.current": f"{usage * MIB}\n",
        "memory.max": f"{limit}\n",
        "memory.stat": "".join(f"{name} {value * MIB}\n" for name, value in {**stat, "unevictable": 0}.items()),
        "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
        "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0 avg300=0 total=0\n",
        "memory.high": "max\n",
    }
    node.cgroup("memory", directory, files | {name.replace("_", "."): text for name, text in more.items()})


def watch(node: World) -> MemoryWatch:
    return MemoryWatch(CgroupReader(node.host, node.layout), node.clock)


def after(node: World, directory: str, *looks: dict[str, Any]) -> dict[Any, Any]:
    """Return the alarms after the last of these looks, a second apart."""
    watching, found = watch(node), {}
    for look in looks:
        put(node, directory, **look)
        node.clock.advance(1)
        found = watching.look(tuple(node.pods))
    return found


def test_memory_that_grows_towards_its_limit_raises_an_alarm() -> None:
    node, directory = node_with()
    (alarm,) = after(node, directory, {"usage": 400}, {"usage": 440}).values()
    assert (alarm.need, alarm.limit, alarm.growth, alarm.rule) == (440 * MIB, 512 * MIB, 40 * MIB, "soon")


def test_page_cache_at_the_limit_raises_none() -> None:
    node, directory = node_with()
    assert after(node, directory, {"usage": 511, "file": 400}, {"usage": 511, "file": 390}) == {}


def test_a_container_without_a_limit_is_never_looked_at() -> None:
    node, directory = node_with()
    assert after(node, directory, {"usage": 400, "limit": "max"}, {"usage": 999, "limit": "max"}) == {}


def test_the_lower_one_of_both_limits_counts() -> None:
    node, directory = node_with()
    high = f"{400 * MIB}\n"
    (alarm,) = after(node, directory, {"usage": 300, "memory_high": high}, {"usage": 305, "memory_high": high}).values()
    assert alarm.limit == 400 * MIB, "300 of 512Mi would not even be looked at"


def test_tasks_that_wait_for_memory_near_the_limit_raise_an_alarm() -> None:
    node, directory = node_with()
    waits = "some avg10=25.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    (alarm,) = after(node, directory, {"usage": 450, "memory_pressure": waits}).values()
    assert (alarm.rule, alarm.pressure) == ("pressed", 0.25)


def test_a_limit_that_was_raised_is_read_before_anything_is_said() -> None:
    node, directory = node_with()
    raised = str(1024 * MIB)
    assert after(node, directory, {"usage": 400}, {"usage": 440, "limit": raised}) == {}


def test_a_container_that_has_just_ended_is_passed_over() -> None:
    node, _ = node_with()
    assert watch(node).look(tuple(node.pods)) == {}
