"""Whose pod was it? Departed pods are known by name only, and names say which workload made them.

    Deployment, Rollout, others   NAME-HASH-SUFFIX
    DaemonSet, ReplicaSet, Job    NAME-SUFFIX
    StatefulSet                   NAME-ORDINAL
    CronJob                       NAME-MINUTES-SUFFIX

Hashes and suffixes are written in the letters that Kubernetes makes them of (no vowels, no 0, 1, 3), so a name that
only looks similar seldom fits.
"""

import re
from collections.abc import Iterable

from kubetide.recommend.core.workloads import Workload

_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
_HASHED = re.compile(rf"(.+)-{_LETTERS}{{1,10}}-{_LETTERS}{{5}}")
_SUFFIXED = re.compile(rf"(.+)-{_LETTERS}{{5}}")
_ORDINAL = re.compile(r"(.+)-[0-9]+")
_MINUTES = re.compile(rf"(.+)-[0-9]{{8,10}}-(?:[0-9]+-)?{_LETTERS}{{5}}")
_PATTERNS = {
    "StatefulSet": _ORDINAL,
    "DaemonSet": _SUFFIXED,
    "ReplicaSet": _SUFFIXED,
    "Job": _SUFFIXED,
    "CronJob": _MINUTES,
}
_EACH = (_MINUTES, _HASHED, _SUFFIXED, _ORDINAL)


class PodMatcher:
    """Finds the workload of a pod: by what owns it today, else by its name."""

    def __init__(self, workloads: Iterable[Workload]) -> None:
        self._present: dict[tuple[str, str], Workload] = {}
        self._by_name: dict[tuple[re.Pattern[str], str, str], Workload] = {}
        for workload in workloads:
            for pod in workload.pods:
                self._present[workload.namespace, pod] = workload
            named = [(workload.kind, workload.name)]
            if workload.maker is not None:
                named.append((workload.maker.kind, workload.maker.name))
            for kind, name in named:
                self._by_name[_PATTERNS.get(kind, _HASHED), workload.namespace, name] = workload

    def match(self, namespace: str, pod: str) -> Workload | None:
        """Return the workload of a pod, or None where none of today's fits."""
        if (found := self._present.get((namespace, pod))) is not None:
            return found
        for pattern in _EACH:
            fits = pattern.fullmatch(pod)
            if fits is not None and (found := self._by_name.get((pattern, namespace, fits[1]))) is not None:
                return found
        return None
