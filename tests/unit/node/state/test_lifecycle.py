"""Pods and containers seen in directory events."""

import asyncio

import pytest

from kubetide.api.qos.cgroups import CgroupDriver, CgroupPaths
from kubetide.node.core.layout import Layout
from kubetide.node.state.callbacks import Callbacks, DuplicateCallback, News
from kubetide.node.state.lifecycle import Change, Lifecycle
from unit.node.memory_host import MemoryHost

LAYOUT = Layout(version=2, cgroup_root="/cg", paths=CgroupPaths(CgroupDriver.SYSTEMD))
TIER = "/cg/kubepods.slice/kubepods-burstable.slice"
POD = "kubepods-burstable-podabc_1.slice"


class Watched:
    def __init__(self, host: MemoryHost | None = None) -> None:
        self.watched: set[str] = set()
        self.host = host or MemoryHost({f"{TIER}/cgroup.procs": "", "/cg/kubepods.slice/cgroup.procs": ""})
        self.lifecycle = Lifecycle(self.host, LAYOUT, self.watched.add, self.watched.discard)
        self.seen: list[Change] = []
        self.lifecycle.add_handler(self.seen.append)
        self.lifecycle.start()

    def dispatch(self) -> list[Change]:
        self.lifecycle.dispatch()
        seen, self.seen[:] = list(self.seen), []
        return seen


def test_a_new_pod_is_announced_with_its_uid_and_watched() -> None:
    watched = Watched()
    watched.lifecycle.created(TIER, POD)
    assert watched.dispatch() == [Change(True, "abc-1")]
    assert f"{TIER}/{POD}" in watched.watched


def test_a_container_that_was_faster_than_the_watch_is_not_lost() -> None:
    watched = Watched()
    watched.host.files[f"{TIER}/{POD}/cri-containerd-c1.scope/cgroup.procs"] = ""
    watched.lifecycle.created(TIER, POD)
    watched.lifecycle.created(f"{TIER}/{POD}", "cri-containerd-c1.scope")
    assert watched.dispatch() == [Change(True, "abc-1"), Change(True, "abc-1", "c1")]


def test_what_is_no_pod_or_container_is_ignored() -> None:
    watched = Watched()
    watched.lifecycle.created("/cg/kubepods.slice", "kubepods-burstable.slice")
    watched.lifecycle.created(TIER, POD)
    watched.lifecycle.created(f"{TIER}/{POD}", "crio-conmon-x.scope")
    assert watched.dispatch() == [Change(True, "abc-1")]


def test_a_pod_that_goes_is_announced_and_no_longer_watched() -> None:
    watched = Watched()
    watched.lifecycle.created(TIER, POD)
    watched.lifecycle.removed(TIER, POD)
    assert watched.dispatch() == [Change(True, "abc-1"), Change(False, "abc-1")]
    assert f"{TIER}/{POD}" not in watched.watched


def test_pods_from_before_the_start_are_not_news_but_their_containers_are() -> None:
    host = MemoryHost({f"{TIER}/{POD}/cgroup.procs": "", "/cg/kubepods.slice/cgroup.procs": ""})
    watched = Watched(host)
    assert watched.dispatch() == []
    watched.lifecycle.created(f"{TIER}/{POD}", "cri-containerd-c2.scope")
    assert watched.dispatch() == [Change(True, "abc-1", "c2")]


def test_one_bad_handler_does_not_silence_the_others() -> None:
    watched = Watched()

    def bad(change: Change) -> None:
        raise RuntimeError("no")

    watched.lifecycle.add_handler(bad)
    watched.lifecycle.created(TIER, POD)
    assert watched.dispatch() == [Change(True, "abc-1")]


def test_events_that_the_kernel_lost_are_found_by_comparing() -> None:
    watched = Watched()
    watched.lifecycle.created(TIER, POD)
    watched.dispatch()
    watched.host.files[f"{TIER}/kubepods-burstable-podnew.slice/cri-containerd-c.scope/cgroup.procs"] = ""
    watched.lifecycle.compare()
    assert watched.dispatch() == [Change(False, "abc-1"), Change(True, "new"), Change(True, "new", "c")]
    watched.lifecycle.compare()
    assert watched.dispatch() == []


async def test_bursts_of_news_collapse_into_one_call() -> None:
    callbacks = Callbacks()
    calls: list[str] = []
    callbacks.register(News.PODS, "first", lambda: calls.append("first"))
    callbacks.register(News.PODS, "second", lambda: calls.append("second"))
    for _ in range(5):
        callbacks.signal(News.PODS)
    task = asyncio.get_running_loop().create_task(callbacks.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls == ["first", "second"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_name_may_register_once() -> None:
    callbacks = Callbacks()
    callbacks.register(News.NODE, "one", lambda: None)
    with pytest.raises(DuplicateCallback):
        callbacks.register(News.NODE, "one", lambda: None)
