"""Whose pod was it? Departed pods are known by name only, and names say which workload made them.

    Deployment, Rollout, others   NAME-HASH-SUFFIX
    DaemonSet, ReplicaSet         NAME-SUFFIX
    Job                           NAME-SUFFIX, NAME-INDEX-SUFFIX
    StatefulSet                   NAME-ORDINAL
    CronJob                       NAME-MINUTES-SUFFIX, NAME-MINUTES-INDEX-SUFFIX

Hashes and suffixes are written in the letters that Kubernetes makes them of (no vowels, no 0, 1, 3), so a name that
only looks similar seldom fits. A generated name has 63 characters at most: what stands before its suffix is cut after
58, so that the pods of long names have no dash before the suffix and part of a hash, or of the name, only.
"""

import re
from collections.abc import Iterable

from kubetide.recommend.core.workloads import Workload

_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
_HASHED = re.compile(rf"(.+)-{_LETTERS}{{1,10}}-{_LETTERS}{{5}}")
_SUFFIXED = re.compile(rf"(.+)-{_LETTERS}{{5}}")
_INDEXED = re.compile(rf"(.+)-[0-9]+-{_LETTERS}{{5}}")
_ORDINAL = re.compile(r"(.+)-[0-9]+")
_MINUTES = re.compile(rf"(.+)-[0-9]{{8,10}}-(?:[0-9]+-)?{_LETTERS}{{5}}")
_PATTERNS = {
    "StatefulSet": (_ORDINAL,),
    "DaemonSet": (_SUFFIXED,),
    "ReplicaSet": (_SUFFIXED,),
    "Job": (_SUFFIXED, _INDEXED),
    "CronJob": (_MINUTES,),
}
_EACH = (_MINUTES, _HASHED, _SUFFIXED, _INDEXED, _ORDINAL)

_LONGEST, _CUT = 63, 58
_ENDED = re.compile(rf".*{_LETTERS}{{5}}")
_MIDDLES = {
    "DaemonSet": re.compile("-?"),
    "ReplicaSet": re.compile("-?"),
    "Job": re.compile("-?|-[0-9]+-?"),
    "CronJob": re.compile("-?|-[0-9]+(?:-[0-9]+)?-?"),
    "StatefulSet": None,
}
"""What may stand between a name and where it was cut; StatefulSets are not cut."""
_HASH = re.compile(rf"-?|-{_LETTERS}{{1,10}}-?")


class PodMatcher:
    """Finds the workload of a pod: by what owns it today, else by its name."""

    def __init__(self, workloads: Iterable[Workload]) -> None:
        self._present: dict[tuple[str, str], Workload] = {}
        self._by_name: dict[tuple[re.Pattern[str], str, str], Workload] = {}
        self._long: dict[str, list[tuple[str, re.Pattern[str], Workload]]] = {}
        for workload in workloads:
            for pod in workload.pods:
                self._present[workload.namespace, pod] = workload
            named = [(workload.kind, workload.name)]
            if workload.maker is not None:
                named.append((workload.maker.kind, workload.maker.name))
            for kind, name in named:
                for pattern in _PATTERNS.get(kind, (_HASHED,)):
                    self._by_name[pattern, workload.namespace, name] = workload
                middle = _MIDDLES.get(kind, _HASH)
                if middle is not None and len(name) >= _CUT - len("-1234567890-99999-"):
                    self._long.setdefault(workload.namespace, []).append((name[:_CUT], middle, workload))
        for each in self._long.values():
            each.sort(key=lambda one: len(one[0]), reverse=True)  # of `web` and `web-front` the longer one fits better

    def match(self, namespace: str, pod: str) -> Workload | None:
        """Return the workload of a pod, or None where none of today's fits."""
        if (found := self._present.get((namespace, pod))) is not None:
            return found
        for pattern in _EACH:
            fits = pattern.fullmatch(pod)
            if fits is not None and (found := self._by_name.get((pattern, namespace, fits[1]))) is not None:
                return found
        if len(pod) == _LONGEST and _ENDED.fullmatch(pod):
            for name, middle, workload in self._long.get(namespace, ()):
                if pod.startswith(name) and middle.fullmatch(pod[len(name) : _CUT]) is not None:
                    return workload
        return None
