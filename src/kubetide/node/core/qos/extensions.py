"""Extensions of the QoS strategies: code of users that decides for pods which say nothing themselves.

    class Gradual(Extension):
        def cpu_burst(self, pod):
            if pod.namespace == "shop" and crc32(pod.uid.encode()) % 100 < 10:     # a tenth of the pods first
                return CPUBurstConfig(policy="auto")

A new setting is tried on some pods before it is written into the NodeSLO for all. What an extension returns acts
exactly as the annotation of the pod would; a pod that has the annotation is never asked about. An extension may also
bring strategies of its own. One that fails is noted and counts as silent: it must not stop the node's own rules.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kubetide.api.qos.slo_strategies import CPUBurstConfig, PodMemoryQOS
from kubetide.errors import SettingsError
from kubetide.node.core.features import switches
from kubetide.node.core.qos.strategy import Strategy
from kubetide.node.core.snapshot import PodState

GROUP = "kubetide.qos_extensions"
"""Entry points of this group are extensions; the name of the entry point is the name in the flag."""

FIELD = "qos-extension-plugins"
Factory = Callable[[], "Extension"]
Config = TypeVar("Config", CPUBurstConfig, PodMemoryQOS)


class Extension:
    """Base of an extension: override what it wants to decide."""

    def cpu_burst(self, pod: PodState) -> CPUBurstConfig | None:
        """Return what the pod's CPU burst annotation would say, None to leave it to the node."""
        return None

    def memory_qos(self, pod: PodState) -> PodMemoryQOS | None:
        """Return what the pod's memory QoS annotation would say, None to leave it to the node."""
        return None

    def strategies(self) -> Sequence[Strategy]:
        """Return strategies that run beside those of the agent, each at its own interval."""
        return ()


@dataclass(slots=True)
class Extensions:
    """The extensions that are switched on, asked in the order of their names."""

    active: Mapping[str, Extension] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """What an extension last failed with, by its name and question."""

    def cpu_burst(self, pod: PodState) -> CPUBurstConfig | None:
        """Return the first answer about a pod's CPU burst."""
        questions = ((name, one.cpu_burst) for name, one in self.active.items())
        return self._first("cpu_burst", questions, pod, CPUBurstConfig)

    def memory_qos(self, pod: PodState) -> PodMemoryQOS | None:
        """Return the first answer about a pod's memory QoS."""
        questions = ((name, one.memory_qos) for name, one in self.active.items())
        return self._first("memory_qos", questions, pod, PodMemoryQOS)

    def strategies(self) -> list[Strategy]:
        """Return what the extensions want to run beside the agent's own strategies."""
        found: list[Strategy] = []
        for name, extension in self.active.items():
            try:
                found += extension.strategies()
            except Exception as error:
                raise SettingsError(f"extension {name!r} has no usable strategies: {error}", field=FIELD) from error
        return found

    def _first(
        self,
        question: str,
        asked: Iterable[tuple[str, Callable[[PodState], Config | None]]],
        pod: PodState,
        expected: type[Config],
    ) -> Config | None:
        for name, ask in asked:
            try:
                answer = ask(pod)
                if answer is not None and not isinstance(answer, expected):
                    raise TypeError(f"{type(answer).__name__} is not {expected.__name__}")
            except Exception as error:  # noqa: BLE001 - code of others, which may fail with anything
                self.problems[f"{name}.{question}"] = f"{pod.key}: {type(error).__name__}: {error}"
                continue
            self.problems.pop(f"{name}.{question}", None)
            if answer is not None:
                return answer
        return None


def switched_on(text: str, installed: Mapping[str, Factory]) -> Extensions:
    """Return the extensions that a flag like `gradual=true,other=false` switches on; raise SettingsError."""
    wanted = switches(text, field=FIELD)
    unknown = sorted(wanted.keys() - installed.keys())
    if unknown:
        known = ", ".join(sorted(installed)) or "none"
        raise SettingsError(f"unknown extension {unknown[0]!r}; installed: {known}", field=FIELD)
    return Extensions({name: _made(name, installed[name]) for name in sorted(wanted) if wanted[name]})


def _made(name: str, factory: Factory) -> Extension:
    try:
        made = factory()
    except Exception as error:
        raise SettingsError(f"extension {name!r} cannot be loaded: {error}", field=FIELD) from error
    if not isinstance(made, Extension):
        raise SettingsError(f"extension {name!r} gives a {type(made).__name__}, no Extension", field=FIELD)
    return made
