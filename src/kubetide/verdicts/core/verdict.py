"""What a verdict is: a line that says what is so, and a line to paste that changes it.

Both are templates with named gaps, `<name>`, so that the reference page can show them as they are. A finding is a
verdict about one object, with the gaps filled in.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kubetide.api.objects.meta import ObjectKey

_GAP = re.compile(r"<([a-z_]+)>")


class Severity(StrEnum):
    """How much a verdict matters, worst first. What could not be looked at is never fine."""

    ERROR = "error"
    UNKNOWN = "unknown"
    WARNING = "warning"
    NOTE = "note"
    OK = "ok"

    @property
    def rank(self) -> int:
        """Position in the order: 0 is the worst."""
        return list(Severity).index(self)

    @property
    def is_problem(self) -> bool:
        """Whether somebody has to do something about it."""
        return self in (Severity.ERROR, Severity.WARNING)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One entry of the table."""

    id: str
    severity: Severity
    line: str
    remedy: str
    """A command to paste; empty where there is nothing to do."""
    meaning: str
    """A sentence for the reference page."""

    @property
    def gaps(self) -> frozenset[str]:
        """The names of all gaps in the line and in the remedy."""
        return frozenset(_GAP.findall(self.line)) | frozenset(_GAP.findall(self.remedy))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A verdict about one object."""

    verdict: Verdict
    kind: str
    """What it is about, in the words of `kubetide explain`: hpa, vpa, pod, node, deploy …, or a component."""
    key: ObjectKey
    values: Mapping[str, str] = field(default_factory=dict)
    more: int = 0
    """How many other objects it holds for alike; they are not listed."""

    @property
    def severity(self) -> Severity:
        return self.verdict.severity

    @property
    def line(self) -> str:
        """The verdict in one line."""
        text = _filled(self.verdict.line, self)
        return f"{text} (and {self.more} more like it)" if self.more else text

    @property
    def remedy(self) -> str:
        """The command that mends it; empty where there is nothing to do."""
        return _filled(self.verdict.remedy, self)

    @property
    def subject(self) -> str:
        """The object in one word or two."""
        return f"{self.kind} {self.key}" if self.key.name else self.kind

    def row(self) -> dict[str, str]:
        """Return the finding as JSON shows it."""
        return {
            "id": self.verdict.id,
            "severity": self.severity.value,
            "kind": self.kind,
            "namespace": self.key.namespace,
            "name": self.key.name,
            "verdict": self.line,
            "remedy": self.remedy,
        }


def _filled(template: str, finding: Finding) -> str:
    values = {"name": finding.key.name, "namespace": finding.key.namespace, **finding.values}
    return _GAP.sub(lambda gap: values[gap[1]], template)


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Return findings by severity; those that weigh the same keep their order."""
    return sorted(findings, key=lambda one: one.severity.rank)
