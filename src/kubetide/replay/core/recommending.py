"""The recommender's loop on a recorded cluster: the same steps in the same order, on the same core functions.

    VPAs → pods → usage, then OOM kills → pods that left → recommendations → garbage

What a running recommender has from before the recording (checkpoints) is not known here: a replay agrees with it from
the start only where both started with nothing.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import PodRecommendation, VerticalPodAutoscaler, update_mode
from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import NOTHING, Selector, selector_from
from kubetide.errors import SelectorError
from kubetide.replay.core.history import Change, RecordedCluster
from kubetide.vpa.core.policy import Recommended, recommendations
from kubetide.vpa.recommender.core.aggregate import Tuning
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.oom import Oom, Seen, from_pod, from_update
from kubetide.vpa.recommender.core.recommend import Options, recommend
from kubetide.vpa.recommender.core.significance import can_wait, requests_of
from kubetide.vpa.recommender.core.status import recommendation_body
from kubetide.vpa.recommender.core.usage.feeding import PodFeed, feed, feed_oom, gather

_PENDING = "Pending"
_SCALED = ("Deployment", "StatefulSet")


class RecommenderReplay:
    """Replays the loops of a recommender that starts with nothing."""

    def __init__(self, cluster: RecordedCluster, options: Options | None = None, tuning: Tuning | None = None) -> None:
        self._cluster = cluster
        self._options = options or Options()
        self._model = Model(tuning)
        self._feed = PodFeed()
        self._seen = Seen()
        self._early: deque[Oom] = deque()
        self._queue: deque[Oom] = deque()
        self._found: Mapping[ObjectKey, tuple[Recommended, ...]] = {}

    def run(self, loops: Sequence[datetime]) -> Iterator[tuple[datetime, dict[ObjectKey, Any]]]:
        """Yield what every loop recommends, by VPA, as a status holds it."""
        for now in loops:
            yield now, self.loop(now)

    def loop(self, now: datetime) -> dict[ObjectKey, Any]:
        """Run one loop; return the recommendation of every VPA that has one."""
        for change in self._cluster.advance(now):
            if change.kind == "Pod":
                self._note_kills(change)
        self._load_vpas()
        model = self._model
        pods = [pod for pod in self._cluster.objects["Pod"].values() if pod.status.phase != _PENDING]
        self._feed.sync(model, pods, now=now)
        self._take(self._early, now)
        feed(model, gather(model, list(self._cluster.usage()), now=now, init=self._feed.init_containers))
        self._take(self._queue, now)
        self._feed.delete_removed(model)
        model.fold_departed(now=now)
        vpas = list(model.vpas.values())
        self._found = recommend(model, vpas, self._options, remember=True)
        model.collect_garbage(now=now, has_controller={})
        return {key: recommendation_body(one) for key, one in self._found.items() if one}

    def can_stay(self, key: ObjectKey, written: Any) -> bool:
        """Return whether a status from before may stand beside what the last loop recommended: nobody needs it yet."""
        vpa, pods = self._model.vpas.get(key), self._cluster.objects["Pod"]
        if vpa is None or written is None:
            return False
        for labels in vpa.label_sets.values():
            labels.requests = requests_of(pods[pod] for pod in labels.pods if pod in pods)
        old = recommendations(convert(written, PodRecommendation)) or ()
        return can_wait(old, self._found.get(key, ()), vpa.label_sets.values())

    def _note_kills(self, change: Change) -> None:
        """Find OOM kills as the recommender's watch of pods that are not pending does."""
        old, new = (_visible(each) for each in (change.old, change.new))
        if new is None:
            if old is not None:
                self._seen.forget(old.metadata.namespace, old.metadata.name, old.metadata.uid)
        elif old is None:
            self._early.extend(self._seen.fresh(from_pod(new)))
        else:
            self._queue.extend(self._seen.fresh(from_update(old, new)))
            self._queue.extend(self._seen.fresh(from_pod(new)))

    def _take(self, kills: deque[Oom], now: datetime) -> None:
        while kills:
            feed_oom(self._model, kills.popleft(), now=now)

    def _load_vpas(self) -> None:
        present = self._cluster.objects["VerticalPodAutoscaler"]
        for key, vpa in present.items():
            self._model.set_vpa(
                VpaState(
                    key,
                    self._selector(key.namespace, vpa),
                    created=vpa.metadata.creation_timestamp,
                    target=vpa.spec.target_ref,
                    policy=vpa.spec.resource_policy,
                    mode=update_mode(vpa),
                    annotations=vpa.metadata.annotations or {},
                    loaded=True,
                ),
                keep_history=True,
            )
        for key in [key for key in self._model.vpas if key not in present]:
            self._model.delete_vpa(key)

    def _selector(self, namespace: str, vpa: VerticalPodAutoscaler) -> Selector:
        target = vpa.spec.target_ref
        if target is None or target.kind not in _SCALED:
            return NOTHING
        found = self._cluster.objects[target.kind].get(ObjectKey(namespace, target.name))
        try:
            return selector_from(found.spec.selector) if found is not None else NOTHING
        except SelectorError:
            return NOTHING


def _visible(pod: Pod | None) -> Pod | None:
    return None if pod is None or pod.status.phase == _PENDING else pod
