"""Labels that pods must have, by rules in a ConfigMap; off unless its `enable` is true.

Rules that cannot be read leave the previous ones in force.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kubetide.api.objects.meta import ApiObject
from kubetide.api.values.codec import decode_folded
from kubetide.api.values.compat import Compat
from kubetide.errors import DecodeError
from kubetide.slo.core.compat import NEWEST, SKIP_ENHANCED_VALIDATION

SKIP_LABEL = "pod.koordinator.sh/skip-enhanced-validation"


class LabelRule(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    required_labels: tuple[str, ...] | None = None
    namespace_whitelist: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RequiredLabels:
    """The rules in force."""

    enabled: bool = False
    rules: tuple[LabelRule, ...] = ()

    def updated(self, data: Mapping[str, str] | None) -> tuple["RequiredLabels", str | None]:
        """Take in a state of the ConfigMap (None: it does not exist); return the rules and what cannot be read."""
        if data is None:
            return RequiredLabels(), None
        enabled = data.get("enable", "").strip().lower() == "true"
        text = data.get("rules", "")
        try:
            rules = decode_folded(text, tuple[LabelRule, ...], what="rules") if text else ()
        except DecodeError as error:
            return self, str(error)
        return RequiredLabels(enabled, rules), None

    def problems(self, namespace: str, labels: Mapping[str, str], compat: Compat = NEWEST) -> tuple[str, ...]:
        """Return which rules a pod breaks."""
        skipped = compat.has(SKIP_ENHANCED_VALIDATION) and labels.get(SKIP_LABEL) == "true"
        if not self.enabled or skipped:
            return ()
        return tuple(
            f"rule {rule.name!r} requires the label {label}"
            for rule in self.rules
            if namespace not in (rule.namespace_whitelist or ())
            for label in rule.required_labels or ()
            if label not in labels
        )
