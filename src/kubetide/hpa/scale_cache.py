"""Scales of targets from a watch, instead of one request per autoscaler and reconcile, where many share a kind.

The scale of a Deployment, StatefulSet or ReplicaSet is a view of three of its fields. With hundreds of autoscalers it
is cheaper to follow these objects than to read thousands of scales a minute. What is seen here may be a moment old, so
it is good for deciding to do nothing: before anything is written, the scale itself is read and the decision made anew.
Where samples wake autoscalers, so that seconds count, it is written without: the server refuses it if it is not the
version that was seen, and only then it is read.

It needs the right to list and watch these kinds. Without it, and for every other kind, each reconcile reads the scale.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache

from msgspec.structs import replace

from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaMeta
from kubetide.api.objects.meta import ApiObject, CrossVersionObjectReference, ObjectKey, TypedObject, group_of, key_of
from kubetide.api.objects.scheme import Resource
from kubetide.api.values.selectors import LabelSelector, selector_from
from kubetide.api.values.shard_selector import ShardSelector
from kubetide.clock import Clock
from kubetide.errors import KubetideError, SelectorError
from kubetide.hpa.core.claims import Claims, selector_of
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.store import Store
from kubetide.kube.client.client import Client
from kubetide.kube.client.discovery import DiscoveredResource
from kubetide.kube.scale import ScaleTarget, normalise_selector
from kubetide.log import get_logger

log = get_logger("hpa")

OLDEST = timedelta(seconds=90)
"""A watch that has been silent for longer than servers send bookmarks is not trusted."""


class _Spec(ApiObject, frozen=True, kw_only=True, gc=False):
    replicas: int | None = None
    selector: LabelSelector | None = None


class _Status(ApiObject, frozen=True, kw_only=True, gc=False):
    replicas: int = 0


class Workload(TypedObject, frozen=True, kw_only=True, gc=False):
    """What a scale shows of a workload, and who wrote it."""

    metadata: HpaMeta = HpaMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


Kind = tuple[str, str]

RESOURCES: dict[Kind, Resource[Workload]] = {
    ("apps", kind): Resource("apps", "v1", plural, kind, Workload)
    for kind, plural in (("Deployment", "deployments"), ("StatefulSet", "statefulsets"), ("ReplicaSet", "replicasets"))
}


class ScaleWatch:
    """Follows the kinds that many autoscalers scale."""

    def __init__(self, client: Client, clock: Clock, settings: HpaSettings) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._shard = settings.namespace_shard
        self._informers: dict[Kind, Informer[Workload]] = {}
        self._shown: dict[tuple[Kind, ObjectKey], tuple[Workload, ScaleTarget]] = {}
        """The scale of each workload that was asked for, and what it was made from."""
        self._refused: set[Kind] = set()

    def get(self, namespace: str, reference: CrossVersionObjectReference) -> ScaleTarget | None:
        """Return the scale as last seen; None if the server has to be asked."""
        if not self._informers:
            return None
        kind = _kind_of(reference.api_version, reference.kind)
        informer = self._informers.get(kind) if kind is not None else None
        if kind is None or informer is None or not informer.has_synced:
            return None
        age = informer.staleness()
        key = ObjectKey(namespace, reference.name)
        found = informer.store.get(key)
        if found is None:
            self._shown.pop((kind, key), None)
            return None
        if age is None or age > OLDEST:
            return None
        shown = self._shown.get((kind, key))
        if shown is None or shown[0] is not found:
            target = _scale_of(kind, key, found)
            if target is None:
                return None
            shown = self._shown[kind, key] = (found, target)
        return shown[1]

    def select(self, shard: ShardSelector) -> None:
        """Follow the targets of this shard from now on."""
        self._shard = shard
        for informer in self._informers.values():
            informer.select(shard)

    async def wait_synced(self) -> None:
        """Return: a scale that is not followed, or not yet, is read."""

    async def run(self, hpas: Store[HorizontalPodAutoscaler], claims: Claims) -> None:
        """Begin to follow a kind once enough autoscalers name it; until cancelled."""
        if self._settings.scale_watch_from <= 0:
            return
        async with asyncio.TaskGroup() as group:
            while True:
                for kind in self._worth_it(hpas):
                    resource = RESOURCES[kind]
                    if await self._may_list(kind, resource):
                        log.info("following scale targets", kind=kind[1])
                        informer = Informer(
                            self._client,
                            resource,
                            clock=self._clock,
                            namespace=self._settings.namespace or None,
                            shard=self._shard,
                            slim=_slim,
                        )
                        self._informers[kind] = informer
                        group.create_task(informer.run())
                self._claim_for_others(hpas, claims)
                await asyncio.sleep(self._settings.sync_period.total_seconds())

    def _claim_for_others(self, hpas: Iterable[HorizontalPodAutoscaler], claims: Claims) -> None:
        """Note which pods belong to autoscalers of split namespaces that another replica reconciles."""
        for hpa in hpas if self._settings.shards_split else ():
            namespace = hpa.metadata.namespace
            if namespace in self._settings.shards_split and (found := self.get(namespace, hpa.spec.scale_target_ref)):
                claims.claim(key_of(hpa), selector_of(found.selector))

    def _worth_it(self, hpas: Iterable[HorizontalPodAutoscaler]) -> list[Kind]:
        references = [hpa.spec.scale_target_ref for hpa in hpas]
        named = Counter([_kind_of(one.api_version, one.kind) for one in references])
        return [
            kind
            for kind, count in named.items()
            if kind is not None
            and count >= self._settings.scale_watch_from
            and kind not in self._informers
            and kind not in self._refused
        ]

    async def _may_list(self, kind: Kind, resource: Resource[Workload]) -> bool:
        """Try once; a right that is missing is not asked for again before the next start."""
        path = resource.path(namespace=self._settings.namespace or None)
        try:
            await self._client.request("GET", path, query={"limit": "1"})
        except KubetideError as error:
            self._refused.add(kind)
            log.info("reading each scale by itself", kind=kind[1], error=str(error))
            return False
        return True


def _slim(workload: Workload) -> Workload:
    """Keep the writers of the scale alone."""
    meta = workload.metadata
    if not meta.managed_fields:
        return workload
    writers = tuple(entry for entry in meta.managed_fields if entry.subresource == "scale")
    return replace(workload, metadata=replace(meta, managed_fields=writers))


def _scale_of(kind: Kind, key: ObjectKey, workload: Workload) -> ScaleTarget | None:
    """Return the scale of a workload; None where only the server knows."""
    if workload.spec.selector is None:
        return None
    try:
        selector = normalise_selector(str(selector_from(workload.spec.selector)))
    except SelectorError:
        return None
    resource, meta = RESOURCES[kind], workload.metadata
    version = {"resourceVersion": meta.resource_version, "uid": meta.uid}
    return ScaleTarget(
        resource=DiscoveredResource(
            group=resource.group, version=resource.version, plural=resource.plural, kind=kind[1], namespaced=True
        ),
        namespace=key.namespace,
        name=key.name,
        spec_replicas=1 if workload.spec.replicas is None else workload.spec.replicas,
        status_replicas=workload.status.replicas,
        selector=selector,
        raw={"metadata": {"name": key.name, "namespace": key.namespace, **version}},
        managed_fields=meta.managed_fields,
    )


@lru_cache(maxsize=256)
def _kind_of(api_version: str, kind: str) -> Kind | None:
    # An apiVersion with a slash too many, which has no group, has a slash in what is taken for its group.
    found = (group_of(api_version), kind)
    return found if found in RESOURCES else None
