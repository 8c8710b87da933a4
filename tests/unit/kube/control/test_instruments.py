"""What the machinery shows of itself."""

import asyncio
import gc

import pytest

from faulty_api import FaultyApi, FaultyTransport
from kubetide.api.objects.core import ConfigMap
from kubetide.api.objects.meta import ObjectKey, ObjectMeta
from kubetide.api.objects.scheme import CONFIG_MAPS
from kubetide.clock import SystemClock
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.kube.control.instruments import Instruments, Reconciles
from kubetide.kube.control.leader_election import LeaderElector
from kubetide.kube.control.reconcile import Reconciled
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.control.workqueue import WorkQueue
from kubetide.telemetry import Telemetry


def test_requests_queues_informers_and_leadership_are_shown() -> None:
    async def main() -> str:
        telemetry, clock, api = Telemetry(), virtual_clock(), FaultyApi()
        instruments = Instruments(telemetry)
        reconciles = Reconciles(telemetry)
        client = Client(
            FaultyTransport(api), clock=clock, observe=instruments.request, announce=instruments.of("autoscaler")
        )
        queue: WorkQueue[str] = WorkQueue(clock=clock, name="hpa")
        queue.add("a")
        queue.add("b")
        assert await queue.get() == "a"
        informer = Informer(client, CONFIG_MAPS, clock=clock)
        elector = LeaderElector(client, clock=clock, lease_name="hpa", namespace="x", identity="me")
        recorder = EventRecorder(client, clock=clock, component="hpa")
        recorder.dropped = 2
        client.announce(queue)
        reconciles.outcome("hpa", Reconciled(seconds=0.5))
        reconciles.outcome("hpa", Reconciled(seconds=0.5, error=ValueError()))
        api.put("/api/v1/configmaps", {"metadata": {"namespace": "x", "name": "a"}})
        with pytest.raises(NotFound):
            await client.get(CONFIG_MAPS, "nothing", namespace="x")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(informer.run()), group.create_task(elector.run(lambda: asyncio.sleep(99)))]
            await asyncio.sleep(5)
            shown = telemetry.render().decode()
            for task in tasks:
                task.cancel()
        return shown

    shown = run_virtual(main())
    for line in (
        'rest_client_requests_total{code="404",method="GET"} 2.0',
        'controller_runtime_reconcile_total{controller="hpa",result="error"} 1.0',
        'workqueue_depth{name="hpa"} 1.0',
        'workqueue_unfinished_work_seconds{name="hpa"} 5.0',
        'workqueue_longest_running_processor_seconds{name="hpa"} 5.0',
        'kubetide_workqueue_running_keys{name="hpa"} 1.0',
        'kubetide_informer_objects{component="autoscaler",resource="configmaps"} 1.0',
        'kubetide_informer_staleness_seconds{component="autoscaler",resource="configmaps"} 5.0',
        'kubetide_informer_lists_total{component="autoscaler",resource="configmaps"} 1.0',
        'leader_election_master_status{name="hpa"} 1.0',
        'kubetide_events_dropped_total{component="hpa"} 2.0',
    ):
        assert line in shown


def test_a_watch_is_a_request_too() -> None:
    async def main() -> list[tuple[str, int, float]]:
        api, clock = FaultyApi(), virtual_clock()
        api.put("/api/v1/configmaps", {"metadata": {"namespace": "x", "name": "a"}})
        seen: list[tuple[str, int, float]] = []
        client = Client(FaultyTransport(api), clock=clock, observe=lambda *request: seen.append(request))
        informer = Informer(client, CONFIG_MAPS, clock=clock)
        task = asyncio.get_running_loop().create_task(informer.run())
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.wait({task})
        return seen

    assert run_virtual(main()) == [("GET", 200, 0.0), ("GET", 200, 0.0)]  # the list, then the watch


def test_informers_of_one_resource_are_one_series_and_dropped_ones_go() -> None:
    telemetry, clock = Telemetry(), SystemClock()
    client = Client(FaultyTransport(FaultyApi()), clock=clock, announce=Instruments(telemetry).of("slo"))
    series = 'kubetide_informer_objects{component="slo",resource="configmaps"}'
    first = Informer(client, CONFIG_MAPS, clock=clock, namespace="a")
    second = Informer(client.over(client.transport), CONFIG_MAPS, clock=clock, namespace="b")
    for informer, name in ((first, "x"), (second, "y")):
        informer.store.put(ObjectKey("", name), ConfigMap(metadata=ObjectMeta(name=name)))
    assert telemetry.render().decode().count(f"{series} 2.0") == 1
    del first, informer, second
    gc.collect()
    assert series not in telemetry.render().decode()


def test_queues_of_one_name_are_one_series() -> None:
    telemetry, clock = Telemetry(), SystemClock()
    client = Client(FaultyTransport(FaultyApi()), clock=clock, announce=Instruments(telemetry).of("hpa"))
    queues: list[WorkQueue[str]] = [WorkQueue(clock=clock, name="hpa") for _ in range(2)]
    for queue in queues:
        queue.add("a")
        client.announce(queue)
    assert telemetry.render().decode().count('workqueue_depth{name="hpa"} 2.0') == 1
