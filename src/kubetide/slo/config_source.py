"""The configuration in force: follows the ConfigMap, keeps the last good state, says once per text what is wrong."""

from kubetide.api.objects.core import ConfigMap
from kubetide.api.objects.events import reference_to, warning
from kubetide.api.values.compat import Compat
from kubetide.kube.control.recorder import Recorder
from kubetide.log import get_logger
from kubetide.slo.core.compat import NEWEST
from kubetide.slo.core.config import (
    AmplificationState,
    ColocationState,
    ConfigProblem,
    NodeSLOConfig,
    NormalizationState,
)
from kubetide.slo.telemetry import SloInstruments

log = get_logger("slo")


class Configuration:
    """What the ConfigMap says, key by key. Nothing is available before one state of it has been taken in."""

    def __init__(self, recorder: Recorder, instruments: SloInstruments, compat: Compat = NEWEST) -> None:
        self._recorder = recorder
        self._instruments = instruments
        self._problems: set[ConfigProblem] = set()
        self.slo = NodeSLOConfig.initial(compat)
        self.colocation = ColocationState.initial(compat)
        self.normalization = NormalizationState(compat=compat)
        self.amplification = AmplificationState(compat=compat)

    @property
    def broken_keys(self) -> set[str]:
        """The keys whose last text could not be used."""
        return {problem.key for problem in self._problems}

    def take_in(self, config: ConfigMap | None) -> bool:
        """Take in a state of the ConfigMap (None: there is none); return whether anything changed."""
        data = None if config is None else (config.data or {})
        before = self._states()
        self.slo, slo_problems = self.slo.updated(data)
        self.colocation, colocation_problems = self.colocation.updated(data)
        self.normalization, normalization_problems = self.normalization.updated(data)
        self.amplification, amplification_problems = self.amplification.updated(data)
        problems = (*slo_problems, *colocation_problems, *normalization_problems, *amplification_problems)
        for problem in problems:
            self._instruments.config_problem(problem)
            if config is not None and problem not in self._problems:
                self._say(config, problem)
        self._problems = set(problems)
        changed = before != self._states()
        if changed:
            log.info("configuration changed", colocation=self.colocation.config.get("enable"))
        return changed

    def _states(self) -> tuple[object, ...]:
        return self.slo, self.colocation, self.normalization, self.amplification

    def _say(self, config: ConfigMap, problem: ConfigProblem) -> None:
        log.warning("configuration cannot be used", key=problem.key, reason=problem.reason, error=problem.message)
        about = reference_to(config, kind="ConfigMap", api_version="v1")
        self._recorder.publish(warning(about, problem.reason, problem.message))
