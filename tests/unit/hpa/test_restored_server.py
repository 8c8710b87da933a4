"""What the controller remembers of its own writes must not outlive a server that has lost them."""

import random

import pytest

from faulty_api import FaultyApi, FaultyTransport
from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaMeta
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.hpa.controller import HpaController
from kubetide.hpa.own_writes import OwnWrites, is_older
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry

KEY = ObjectKey("shop", "web")


def at_version(version: str) -> HorizontalPodAutoscaler:
    meta = HpaMeta(namespace="shop", name="web", uid="u-1", resource_version=version)
    return HorizontalPodAutoscaler(metadata=meta)


def controller(telemetry: Telemetry) -> HpaController:
    clock = virtual_clock()
    client = Client(FaultyTransport(FaultyApi()), clock=clock)
    recorder = EventRecorder(client, clock=clock, component="hpa")
    made = HpaController(client, clock, HpaSettings(), telemetry, recorder, random.Random(1))
    made._hpas._versions.start("115")
    made._own_writes.wrote(KEY, "u-1", "120")
    return made


def skips(telemetry: Telemetry) -> float | None:
    labels = {"group": "autoscaling", "resource": "horizontalpodautoscalers"}
    name = "horizontal_pod_autoscaler_controller_stale_sync_skips_total"
    return telemetry.registry.get_sample_value(name, labels)


def test_nothing_is_decided_from_a_cache_behind_our_own_write() -> None:
    async def main() -> None:
        telemetry = Telemetry()
        made = controller(telemetry)
        assert (await made.reconcile(key_of(at_version("115")))).requeue_after == HpaSettings().sync_period
        assert skips(telemetry) == 1
        made._hpas._versions.vouch("120")
        assert (await made.reconcile(KEY)).requeue_after is None, "it runs, and finds the object gone"
        assert skips(telemetry) == 1

    run_virtual(main())


def test_a_version_that_goes_back_ends_the_memory_of_our_last_write() -> None:
    async def main() -> None:
        telemetry = Telemetry()
        made = controller(telemetry)
        made._on_change(at_version("115"), at_version("90"))
        await made.reconcile(KEY)
        assert skips(telemetry) == 0

    run_virtual(main())


def test_a_write_that_never_shows_does_not_stop_an_autoscaler_for_good() -> None:
    async def main() -> None:
        telemetry = Telemetry()
        made = controller(telemetry)
        for _ in range(5):
            await made.reconcile(KEY)
        assert skips(telemetry) == 1

    run_virtual(main())


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [
        ("99", "100", True),
        ("100", "100", False),
        ("101", "100", False),
        ("", "100", False),
        ("007", "100", False),
        ("1a", "100", False),
    ],
)
def test_versions_are_compared_as_numbers_where_they_are(version: str, than: str, older: bool) -> None:
    assert is_older(version, than) is older


def test_a_new_object_of_the_same_name_has_no_past() -> None:
    writes = OwnWrites()
    writes.wrote(KEY, "u-1", "120")
    writes.wrote(KEY, "u-2", "50")
    assert not writes.is_behind(KEY, None, "60")


def test_what_was_saved_stands_in_for_a_cache_that_is_overdue() -> None:
    writes, cached, saved = OwnWrites(), at_version("115"), at_version("120")
    writes.saved(KEY, saved)
    assert writes.must_wait(KEY, cached, "115")
    assert writes.is_waiting(KEY)
    assert not writes.must_wait(KEY, cached, "115"), "a sync period has passed"
    assert writes.latest(KEY, cached, "115") is saved
    assert not writes.must_wait(KEY, cached, "130"), "the watch went on, and the event of this object was lost"
    assert writes.latest(KEY, cached, "130") is saved
    shown = at_version("121")
    assert writes.latest(KEY, shown, "130") is shown
    assert writes.latest(KEY, cached, "130") is cached, "forgotten once it was seen"


def test_a_write_that_failed_leaves_the_decision_to_the_cache() -> None:
    writes, cached = OwnWrites(), at_version("115")
    writes.saved(KEY, at_version("120"))
    writes.clear(KEY, "another")
    assert writes.is_behind(KEY, cached, "115")
    writes.clear(KEY)
    assert not writes.must_wait(KEY, cached, "115")
    assert writes.latest(KEY, cached, "115") is cached
