"""ClusterColocationProfile and PriorityClass, reduced to what kubetide reads."""

from typing import Any

from kubetide.api.objects.meta import ApiObject, TypedObject
from kubetide.api.values.selectors import LabelSelector


class ProfileSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    """Which pods a profile is for, and what it makes of them.

    Every field may be null: decoding never has to drop nulls, which mean "remove" inside the patch.
    """

    namespace_selector: LabelSelector | None = None
    selector: LabelSelector | None = None
    probability: int | str | None = None
    qos_class: str | None = None
    priority_class_name: str | None = None
    koordinator_priority: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    label_keys_mapping: dict[str, str] | None = None
    annotation_keys_mapping: dict[str, str] | None = None
    label_suffixes: dict[str, str] | None = None
    scheduler_name: str | None = None
    patch: Any = None


class ClusterColocationProfile(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: ProfileSpec = ProfileSpec()


class PriorityClass(TypedObject, frozen=True, kw_only=True, gc=False):
    value: int = 0
    preemption_policy: str | None = None
