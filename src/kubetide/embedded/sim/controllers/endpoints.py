"""Endpoints: which pods a service sends requests to."""

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.base import SimController
from kubetide.embedded.sim.world import ENDPOINTS, PODS, SERVICES, is_active, is_ready, key_of


class Endpoints(SimController):
    """Lists ready pods under their services."""

    name = "endpoint-controller"

    def watch(self) -> None:
        self.world.on(SERVICES, self._changed)
        self.world.on(PODS, self._pod_changed)

    def _changed(self, old: Raw | None, new: Raw | None) -> None:
        obj = new if new is not None else old
        if obj is not None:
            self.enqueue(key_of(obj))

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        pod = new if new is not None else old
        if pod is None:
            return
        labels = (pod["metadata"].get("labels") or {}).items()
        for service in self.world.all(SERVICES, pod["metadata"]["namespace"]):
            selector = (service.get("spec") or {}).get("selector")
            if selector and selector.items() <= labels:
                self.enqueue(key_of(service))

    async def reconcile(self, key: StoreKey) -> None:
        service = self.world.get(SERVICES, key)
        if service is None:
            self.world.remove(ENDPOINTS, key)
            return
        spec = service.get("spec") or {}
        selector = spec.get("selector")
        if not selector:
            return
        ready: list[Raw] = []
        waiting: list[Raw] = []
        for pod in self.world.all(PODS, key.namespace):
            address = (pod.get("status") or {}).get("podIP")
            if not address or not is_active(pod):
                continue
            if selector.items() <= (pod["metadata"].get("labels") or {}).items():
                reference = {"kind": "Pod", "namespace": key.namespace, "name": pod["metadata"]["name"]}
                target = {"ip": address, "nodeName": pod["spec"].get("nodeName"), "targetRef": reference}
                (ready if is_ready(pod) else waiting).append(target)
        ports = [
            {"name": port.get("name", ""), "port": port.get("targetPort") or port.get("port"), "protocol": "TCP"}
            for port in spec.get("ports") or ()
        ]
        subset: Raw = {"ports": ports}
        if ready:
            subset["addresses"] = ready
        if waiting:
            subset["notReadyAddresses"] = waiting
        subsets = [subset] if ready or waiting else []
        known = self.world.get(ENDPOINTS, key)
        if known is not None:
            self.world.put(ENDPOINTS, known, subsets=subsets)
            return
        metadata = {"name": key.name, "namespace": key.namespace}
        self.world.add(ENDPOINTS, {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets})
