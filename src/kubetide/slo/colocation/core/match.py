"""Which profiles are for a pod, and in which order they apply.

A profile matches when its namespace selector matches the labels of the pod's namespace and its selector the labels
with which the pod came in; labels that another profile sets do not count. An empty selector matches everything. A
selector that cannot be read matches nothing and is reported: matching everything would turn prod pods into batch pods
because of a typing error.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kubetide.api.objects.slo import ClusterColocationProfile
from kubetide.api.values.compat import Compat
from kubetide.api.values.selectors import LabelSelector, selector_from
from kubetide.errors import SelectorError
from kubetide.slo.core.compat import NEWEST, PROFILES_BY_NAME


@dataclass(frozen=True, slots=True)
class ProfileProblem:
    """A profile that cannot be used as it is written."""

    profile: str
    message: str


@dataclass(frozen=True, slots=True)
class Matches:
    """The profiles for a pod, in the order in which they apply."""

    profiles: tuple[ClusterColocationProfile, ...]
    problems: tuple[ProfileProblem, ...] = ()


def matching(
    profiles: Iterable[ClusterColocationProfile],
    labels: Mapping[str, str],
    namespace_labels: Mapping[str, str] | None,
    compat: Compat = NEWEST,
) -> Matches:
    """Return the profiles for a pod; `namespace_labels` is None when the namespace could not be read."""
    found, problems = [], []
    for profile in profiles:
        name, spec = profile.metadata.name, profile.spec
        try:
            if is_empty(spec.namespace_selector):
                in_namespace = True
            elif namespace_labels is None:
                problems.append(ProfileProblem(name, "the namespace of the pod could not be read"))
                continue
            else:
                in_namespace = selector_from(spec.namespace_selector).matches(namespace_labels)
            if in_namespace and (is_empty(spec.selector) or selector_from(spec.selector).matches(labels)):
                found.append(profile)
        except SelectorError as error:
            problems.append(ProfileProblem(name, f"selects no pod: {error}"))
    if compat.has(PROFILES_BY_NAME):
        found.sort(key=lambda profile: profile.metadata.name.encode())
    return Matches(tuple(found), tuple(problems))


def is_empty(selector: LabelSelector | None) -> bool:
    """Return whether a selector asks for nothing, and so selects everything."""
    return selector is None or not (selector.match_labels or selector.match_expressions)
