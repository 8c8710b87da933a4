"""Groups of a scoped VPA in the model: one record for the VPA, and beside it one for each group of nodes.

A pod is filed with a label of our own that says to which group its node belongs. A group is then a VPA like any other,
whose selector also asks for that label: histograms, checkpoints and recommendations come apart by themselves. The
record of the VPA itself counts pods and carries conditions; it is neither recommended for nor saved.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.selectors import Operator, Requirement, Selector
from kubetide.vpa.core.scope import group_key, scope_value
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.model import Model

NodeLabels = Callable[[str], Mapping[str, str] | None]
"""The labels of a node by its name; None when the node is not known."""


@dataclass(slots=True)
class Scopes:
    """Knows to which groups pods belong."""

    nodes: NodeLabels
    by_namespace: Mapping[str, list[tuple[Selector, str]]] = field(default_factory=dict)

    def labels(self, pod: Pod, before: Mapping[str, str]) -> Mapping[str, str]:
        """Return the labels that file a pod under its groups; `before` where its node is unknown just now."""
        asked = self.by_namespace.get(pod.metadata.namespace)
        if asked is None:
            return {}
        wanted = [scope for selector, scope in asked if selector.matches(pod.metadata.labels)]
        if not wanted:
            return {}
        node = self.nodes(pod.spec.node_name)
        if node is None:
            return before
        return {_label(scope): scope_value(node, scope) for scope in wanted}


def scopes_of(model: Model, nodes: NodeLabels) -> Scopes:
    """Return which pods of the model are grouped, and by what."""
    found: dict[str, list[tuple[Selector, str]]] = {}
    for vpa in model.vpas.values():
        if vpa.is_scoped:
            found.setdefault(vpa.key.namespace, []).append((vpa.selector, vpa.scope))
    return Scopes(nodes, found)


def group_selector(selector: Selector, scope: str, value: str) -> Selector:
    """Return what selects the pods of one group."""
    if selector.nothing:
        return selector
    return Selector((*selector.requirements, Requirement(_label(scope), Operator.EQUALS, (value,))))


def group_values(model: Model, vpa: VpaState, stored: Iterable[str]) -> list[str]:
    """Return the groups of a scoped VPA: those of its pods, and those that something is still known of."""
    label = _label(vpa.scope)
    values = {labels.labels[label] for labels in vpa.label_sets.values() if label in labels.labels}
    for value in stored:
        group = model.vpas.get(group_key(vpa.key, value))
        # What is stored is looked at once, when the group is new to this process.
        if group is None or not group.loaded or group.history:
            values.add(value)
    return sorted(values)


def members(model: Model, vpa: VpaState) -> list[VpaState]:
    """Return the records that a VPA is recommended for by: itself, or its groups."""
    if not vpa.is_scoped:
        return [vpa]
    return [group for key in vpa.group_keys if (group := model.vpas.get(key)) is not None]


def group_keys(vpa: ObjectKey, values: Iterable[str]) -> tuple[ObjectKey, ...]:
    """Return what the groups of a VPA are called."""
    return tuple(group_key(vpa, value) for value in values)


def _label(scope: str) -> str:
    # No label of a pod can have an @ in its name.
    return f"node@{scope}"
