"""Which containers are asked for together.

Prometheus finds the series of a query, then goes through each from its beginning. A few series over a long time are
cheaper for it than many over a short one, for the same number of samples: it finds each series less often, and unpacks
each piece of a series (120 samples) once. So small namespaces are asked for in groups, and a large one in groups of its
pods, by name: a list of names is looked up, where any other pattern would be tried on every pod of the cluster.

Names are dealt like cards, so that pods of today and departed ones, and those of a large workload, are in all groups
alike; each has its share of the series that the namespace has at a time. A namespace whose pods come and go so fast
that their names make more queries than their samples do is asked for as a whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubetide.recommend.core.matching import PodMatcher

LONGEST_SELECTOR = 4_000
"""Characters of names in a selector: some servers refuse queries of 16 KiB, which may have it twice. With more names of
namespaces than that all are asked for."""


@dataclass(frozen=True, slots=True)
class Part:
    """Containers that are asked for together."""

    selector: str
    series: int
    """About how many there are at a time."""


def parts(series: Mapping[str, int], together: int, pods: Mapping[str, Sequence[str]], fewest: int) -> list[Part]:
    """Return all of some namespaces in parts of about `together` series.

    `series` are those that each namespace has at a time; `pods` are the names that are wanted of large namespaces,
    where they are known. Parts are not made smaller than `fewest` series for the sake of their names.
    """
    small = {name: count for name, count in series.items() if name not in pods}
    found = [
        Part(selector(namespaces), sum(series[name] for name in namespaces)) for namespaces in grouped(small, together)
    ]
    for namespace, names in sorted(pods.items()):
        count = series[namespace]
        groups = max(-(-count // together), -(-sum(len(name) + 1 for name in names) // LONGEST_SELECTOR))
        if groups > max(1, -(-count // max(1, fewest))):
            found.append(Part(selector({namespace}), count))
            continue
        dealt = [names[first::groups] for first in range(min(groups, len(names)))]
        found += [Part(_of_pods(namespace, each), -(-count // groups)) for each in dealt]
    return found


def wanted(matcher: PodMatcher, namespace: str, pods: Sequence[str]) -> tuple[list[str], int]:
    """Return the pods that belong to workloads, sorted, and how many containers they have in all."""
    owners = {pod: workload for pod in pods if (workload := matcher.match(namespace, pod)) is not None}
    return sorted(owners), sum(max(1, len(workload.containers)) for workload in owners.values())


def grouped(series: Mapping[str, int], most: int) -> list[set[str]]:
    """Return namespaces in groups of about `most` series; a larger namespace is alone."""
    groups: list[set[str]] = []
    held = 0
    for name, count in sorted(series.items()):
        if not groups or held + count > most or sum(map(len, groups[-1])) + len(name) > LONGEST_SELECTOR // 2:
            groups.append(set())
            held = 0
        groups[-1].add(name)
        held += count
    return groups


def selector(namespaces: set[str]) -> str:
    """Return the matchers for containers of some namespaces."""
    parts = ['container!=""', 'container!="POD"', 'pod!=""']
    names = "|".join(sorted(namespaces))
    if namespaces and len(names) <= LONGEST_SELECTOR:
        parts.append(f'namespace="{names}"' if len(namespaces) == 1 else f'namespace=~"{names}"')
    return ",".join(parts)


def _of_pods(namespace: str, names: Sequence[str]) -> str:
    """Return the matchers for containers of some pods."""
    listed = "|".join(names).replace(".", r"\\.")  # names have dots, and nothing else that a pattern would understand
    return f'container!="",container!="POD",namespace="{namespace}",pod=~"{listed}"'
