"""What fleets have learned together, kept in a ConfigMap beside the recommender's lease: a few kilobytes, once an hour.

What was learned of single containers is with their checkpoints. Without this object, or the permission to read it,
everything works and fleets learn anew; one that cannot be read is not written over.
"""

from kubetide.api.objects.scheme import CONFIG_MAPS
from kubetide.api.values.patch import MergePatch
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.log import get_logger
from kubetide.vpa.recommender.core.adaptive.learned import LearnedSizes
from kubetide.vpa.recommender.core.adaptive.saved import State, read_state, state_text
from kubetide.vpa.recommender.settings import RecommenderSettings

log = get_logger("vpa.recommender")


class FleetStore:
    """Reads and writes what fleets have learned."""

    def __init__(self, client: Client, settings: RecommenderSettings, learned: LearnedSizes) -> None:
        self._client = client
        self._namespace = settings.leader_elect_resource_namespace
        self._name = f"{settings.lease_name}-learned"
        self._learned = learned
        self._read = False
        self._complained = ""

    async def load(self) -> None:
        """Read what was learned before, once; until that has succeeded nothing is written."""
        if self._read:
            return
        try:
            found = await self._client.get(CONFIG_MAPS, self._name, namespace=self._namespace)
        except NotFound:
            self._read = True
            return
        except KubetideError as error:
            self._complain("what fleets have learned cannot be read yet", error)
            return
        numbers = {}
        for name, text in (found.data or {}).items():
            try:
                numbers[name] = read_state(text).numbers
            except InvalidInput as error:
                log.warning("what a fleet has learned cannot be used", fleet=name, error=str(error))
        self._learned.restore_fleets(numbers)
        self._read = True

    async def write(self) -> None:
        """Write what was learned so far."""
        if not self._read:
            return
        numbers = self._learned.fleet_numbers()
        data = {name: state_text(State(False, 0, each)) for name, each in sorted(numbers.items())}
        try:
            try:
                patch = MergePatch({"data": data})
                await self._client.patch(CONFIG_MAPS, self._name, patch, namespace=self._namespace)
            except NotFound:
                body = {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": self._name, "namespace": self._namespace},
                    "data": data,
                }
                await self._client.create(CONFIG_MAPS, body, namespace=self._namespace)
        except KubetideError as error:
            self._complain("what fleets have learned cannot be written", error)

    def _complain(self, message: str, error: KubetideError) -> None:
        """Log a problem once for as long as it stays the same."""
        if str(error) != self._complained:
            self._complained = str(error)
            log.warning(message, configmap=f"{self._namespace}/{self._name}", error=str(error))
