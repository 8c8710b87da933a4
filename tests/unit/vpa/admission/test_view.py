"""What the webhook knows of the cluster, on the embedded API server."""

import asyncio
from random import Random

from kubetide import crds
from kubetide.api.objects.scheme import DEPLOYMENTS, VPAS
from kubetide.api.values.selectors import EVERYTHING, parse_selector
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.requests import ADMIN
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.admission.observer import AdmissionView
from kubetide.vpa.admission.settings import AdmissionSettings


def test_pods_are_asked_about_also_while_the_target_of_their_vpa_is_gone() -> None:
    async def main() -> None:
        clock = virtual_clock()
        api = ApiServer(clock=clock)
        api.insert(crds.load("verticalpodautoscalers"))
        client = Client(InProcessTransport(api, user=ADMIN), clock=clock)
        view = AdmissionView(client, clock=clock, settings=AdmissionSettings(), rng=Random(0))
        running = asyncio.get_running_loop().create_task(view.run())
        try:
            await client.create(DEPLOYMENTS, make_deployment("web"), namespace="default")
            await client.create(VPAS, make_vpa("web", target="web"), namespace="default")
            await client.create(VPAS, make_vpa("off", target="web", mode="Off"), namespace="default")
            await view.wait_synced()
            await asyncio.sleep(1)
            assert await view.selected() == [("default", parse_selector("app=web"))]
            await client.delete(DEPLOYMENTS, "web", namespace="default")
            await asyncio.sleep(1)
            assert await view.selected() == [("default", EVERYTHING)]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()

    run_virtual(main())
