"""What is wrong with a VPA, said once for as long as it stays so: an event for each container or annotation."""

from kubetide.api.objects.meta import ObjectKey
from kubetide.kube.control.recorder import Recorder
from kubetide.vpa.updater.core import events
from kubetide.vpa.updater.core.disturbing import problems_of
from kubetide.vpa.updater.core.plan import VpaPlan

Told = set[tuple[ObjectKey, str, str]]


class Announcements:
    """Remembers what was said in the last loop."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._before: Told = set()
        self._now: Told = set()

    def begin(self) -> None:
        """Begin a loop: what is not said again in it is no longer so."""
        self._before, self._now = self._now, set()

    def look(self, made: VpaPlan) -> None:
        """Report containers that are left alone because the API server would refuse what they should get, and
        annotations that nobody can make sense of.
        """
        for judgement in made.judged:
            for new in judgement.fitted.containers if judgement.fitted is not None else ():
                if new.refused and self._is_news(made.key, new.name, new.refused):
                    self._recorder.publish(events.invalid(made.vpa, judgement.pod, new.name, new.refused))
        for problem in problems_of(made.vpa):
            if self._is_news(made.key, "", problem):
                self._recorder.publish(events.invalid_annotation(made.vpa, problem))

    def _is_news(self, vpa: ObjectKey, container: str, problem: str) -> bool:
        one = (vpa, container, problem)
        known = one in self._before or one in self._now
        self._now.add(one)
        return not known
