"""The APIServices that send callers here: their CA follows our certificates. Others' are left alone.

An APIService that points to another Service belongs to somebody else, such as metrics-server or an adapter; it is
reported and not touched. Creating them is the installation's business (`kubetide manifests metrics`).
"""

import base64
from collections.abc import Sequence

from kubetide.api.objects.scheme import API_SERVICES
from kubetide.api.values.patch import MergePatch
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.log import get_logger

log = get_logger("metrics")


class Registration:
    """Keeps `spec.caBundle` of our APIServices up to date."""

    def __init__(
        self, client: Client, *, names: Sequence[str], required: Sequence[str], service: str, namespace: str
    ) -> None:
        """Of `names`, those that are `required` are missed when they lead elsewhere; others need not be ours."""
        self._client = client
        self._names = tuple(names)
        self._required = frozenset(required)
        self._service = {"name": service, "namespace": namespace}
        self.problems: dict[str, str] = {}
        """Why an APIService does not lead here."""

    async def refresh(self, trusted: str) -> None:
        """Write the CA where it is missing or another one."""
        bundle = base64.b64encode(trusted.encode()).decode()
        for name in self._names:
            problem = await self._refresh_one(name, bundle)
            if name not in self._required:
                continue
            if problem and self.problems.get(name) != problem:
                log.info("APIService is not ours", name=name, reason=problem)
            if problem:
                self.problems[name] = problem
            else:
                self.problems.pop(name, None)

    async def _refresh_one(self, name: str, bundle: str) -> str:
        try:
            current = await self._client.get_raw(API_SERVICES, name)
        except NotFound:
            return "it does not exist: kubectl apply what `kubetide manifests metrics` prints"
        spec = current.get("spec") or {}
        service = spec.get("service") or {}
        if {key: service.get(key) for key in self._service} != self._service:
            return f"it points to the Service {service.get('namespace')}/{service.get('name')}"
        if spec.get("caBundle") == bundle and not spec.get("insecureSkipTLSVerify"):
            return ""
        # With its version: who else changed it meanwhile is read first.
        change = {
            "metadata": {"resourceVersion": current["metadata"]["resourceVersion"]},
            "spec": {"caBundle": bundle, "insecureSkipTLSVerify": None},
        }
        await self._client.patch(API_SERVICES, name, MergePatch(change))
        log.info("wrote the CA of an APIService", name=name)
        return ""
