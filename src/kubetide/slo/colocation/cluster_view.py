"""Caches of what pods are judged by: profiles, namespaces, priority classes, the ConfigMap with required labels.

A namespace or a PriorityClass that is not in its cache may have been created a moment ago, so it is asked for. Profiles
are not: one that is created at this moment may come too late for this pod.
"""

import random
from collections.abc import Mapping, Sequence

from kubetide.api.objects.core import ConfigMap, Namespace
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import COLOCATION_PROFILES, CONFIG_MAPS, NAMESPACES, PRIORITY_CLASSES
from kubetide.api.objects.slo import ClusterColocationProfile, PriorityClass
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.view import CacheView
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.log import get_logger
from kubetide.slo.colocation.settings import ColocationSettings

log = get_logger("colocation")


class ColocationView(CacheView):
    """The informers of the colocation webhook."""

    def __init__(self, client: Client, *, clock: Clock, settings: ColocationSettings, rng: random.Random) -> None:
        self._client = client
        self.profiles: Informer[ClusterColocationProfile] = Informer(client, COLOCATION_PROFILES, clock=clock, rng=rng)
        self.namespaces: Informer[Namespace] = Informer(client, NAMESPACES, clock=clock, rng=rng)
        self.priority_classes: Informer[PriorityClass] = Informer(client, PRIORITY_CLASSES, clock=clock, rng=rng)
        self.required_labels: Informer[ConfigMap] = Informer(
            client,
            CONFIG_MAPS,
            clock=clock,
            rng=rng,
            namespace=settings.validator_config_namespace,
            field_selector=f"metadata.name={settings.validator_config_name}",
        )
        self.caches = (self.profiles, self.namespaces, self.priority_classes, self.required_labels)

    async def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None if it cannot be read."""
        found = self.namespaces.store.get(ObjectKey("", name))
        if found is None:
            try:
                found = await self._client.get(NAMESPACES, name)
            except KubetideError as error:
                log.warning("cannot read a namespace", namespace=name, error=str(error))
                return None
        return found.metadata.labels or {}

    async def classes_of(self, profiles: Sequence[ClusterColocationProfile]) -> dict[str, PriorityClass]:
        """Return the priority classes that profiles name, as far as they exist."""
        found: dict[str, PriorityClass] = {}
        for name in sorted({profile.spec.priority_class_name or "" for profile in profiles} - {""}):
            known = self.priority_classes.store.get(ObjectKey("", name))
            try:
                found[name] = known if known is not None else await self._client.get(PRIORITY_CLASSES, name)
            except NotFound:
                continue
        return found
