"""What the controller remembers of its own writes must not outlive a server that has lost them."""

import random

from faulty_api import FaultyApi, FaultyTransport
from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaMeta
from kubetide.api.objects.meta import key_of
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.hpa.controller import HpaController, _State
from kubetide.hpa.core.observation import Memory
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry


def at_version(version: str) -> HorizontalPodAutoscaler:
    meta = HpaMeta(namespace="shop", name="web", resource_version=version)
    return HorizontalPodAutoscaler(metadata=meta)


def test_a_version_that_goes_back_ends_the_memory_of_our_last_write() -> None:
    async def main() -> None:
        clock = virtual_clock()
        client = Client(FaultyTransport(FaultyApi()), clock=clock)
        recorder = EventRecorder(client, clock=clock, component="hpa")
        controller = HpaController(client, clock, HpaSettings(), Telemetry(), recorder, random.Random(1))
        state = _State(Memory(), written=at_version("120"))
        controller._states[key_of(at_version("1"))] = state
        controller._on_change(at_version("110"), at_version("115"))
        assert controller._freshest(at_version("115"), state).metadata.resource_version == "120", "still on its way"
        controller._on_change(at_version("115"), at_version("90"))
        assert controller._freshest(at_version("90"), state).metadata.resource_version == "90"

    run_virtual(main())
