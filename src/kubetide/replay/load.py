"""The line protocol for replica counts: services in lock-step, told one step, asked for counts, told the next.

    begin   step, start_seconds, pod_cores, min, max, services [{name, time, replicas}]
    step    services {name: [cores used, cores' worth of requests that arrived, ready, asked for]}
            is answered by {"replicas": {name: count}}
    end

Policies: `hpa:70` (any percent) is the HPA's own rule on the CPU that pods used, as late as a metrics pipeline shows
it. `headroom` is the learned headroom alone, on arrivals. `headroom-safe` is what the annotation does to an HPA at
70 %: the larger of both once the headroom has proved itself, the plain rule until then. Nothing outlives a session.
"""

from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, TypeVar

import msgspec

from kubetide.api.objects.core import Container, Pod, PodSpec, ResourceRequirements
from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.api.objects.meta import ObjectMeta
from kubetide.api.values.quantity import QuantityText
from kubetide.errors import InvalidInput
from kubetide.hpa.core.behavior import limit_plain
from kubetide.hpa.core.headroom.advice import Headroom, Terms
from kubetide.hpa.core.pods import PodGroups, PodList
from kubetide.hpa.core.replicas import Tolerance, propose_utilization
from kubetide.hpa.core.samples import PodReading, Sample
from kubetide.hpa.core.stabilization import Recommendation, Recommendations, stabilize
from kubetide.replay.stdio import check_second, whole, with_whole

HPA_SAFE_PERCENT: Final = 70
_DOWNSCALE_WINDOW: Final = timedelta(minutes=5)
_MOST_PODS: Final = 100_000
_MOST_CORES: Final = 1e9
_LEAST_POD: Final = 0.001
"""Requests are whole millicores."""
_LONGEST: Final = 86400
"""Seconds of a step, and of the start of a pod."""
_KEPT_LISTS: Final = 256
_WHOLE: Final = frozenset({"step", "start_seconds", "min", "max", "k", "time", "replicas"})
_Form = TypeVar("_Form", bound=msgspec.Struct)


class ServiceBegin(msgspec.Struct, frozen=True):
    """A service as the begin message has it; `time` is the second at which its first step begins."""

    name: str
    time: int
    replicas: int


class Begin(msgspec.Struct, frozen=True):
    """What holds for all services of a session."""

    step: int
    start_seconds: int
    pod_cores: float
    min: int
    max: int
    services: list[ServiceBegin]


class Step(msgspec.Struct, frozen=True):
    """What was seen of every service in one step: cores used, cores arrived, ready, asked for."""

    k: int
    services: dict[str, tuple[float, float, int, int]]


class Policy(Protocol):
    """Decides the count of one service after each step."""

    def decide(self, at_seconds: int, *, used: float, arrived: float, ready: int, asked: int) -> int: ...


def terms_of(begin: Begin) -> Terms:
    """Return what is fixed for every service of a session."""
    return Terms(step_seconds=begin.step, start_seconds=begin.start_seconds, minimum=begin.min, maximum=begin.max)


class LearnedHeadroom:
    """The learned headroom, told what arrived."""

    def __init__(self, begin: Begin, service: ServiceBegin) -> None:
        self._headroom = Headroom(terms_of(begin), replicas=service.replicas)
        self._pod_cores = begin.pod_cores

    def decide(self, at_seconds: int, *, used: float, arrived: float, ready: int, asked: int) -> int:
        return self._headroom.advise(at_seconds, arrived / self._pod_cores, ready=ready, asked=asked).replicas


class PlainHpa:
    """The HPA without `behavior` on CPU utilization: mean of the two steps before the last, as metrics arrive late."""

    def __init__(self, begin: Begin, service: ServiceBegin, *, percent: int) -> None:
        self._begin, self._percent = begin, percent
        self._used: deque[float] = deque((0.0, 0.0, 0.0), maxlen=3)
        begins = datetime.fromtimestamp(service.time, UTC)
        self._past: Recommendations = (Recommendation(service.replicas, begins),)
        self._pods: dict[int, PodList] = {}

    def decide(self, at_seconds: int, *, used: float, arrived: float, ready: int, asked: int) -> int:
        self._used.append(used)
        now = datetime.fromtimestamp(at_seconds + self._begin.step, UTC)
        stable = stabilize(self._proposal(ready, asked), self._past, _DOWNSCALE_WINDOW, now=now)
        self._past = stable.recommendations
        return limit_plain(stable.replicas, asked, minimum=self._begin.min, maximum=self._begin.max).replicas

    def _proposal(self, ready: int, asked: int) -> int:
        if ready < 1:
            return asked
        pods = self._pods_of(asked)
        names = [pod.metadata.name for pod in pods]
        millis = round((self._used[0] + self._used[1]) * 500)
        each, more = divmod(millis, ready)
        samples = {name: Sample(each + (place < more)) for place, name in enumerate(names[:ready])}
        return propose_utilization(
            PodReading(samples),
            pods,
            PodGroups(ready, tuple(names[ready:]), (), ()),
            resource="cpu",
            target=self._percent,
            current=asked,
            tolerance=Tolerance(),
            compat=HpaCompat(),
        ).replicas

    def _pods_of(self, count: int) -> PodList:
        """Return as many pods of the service's size, made once: what is decided depends on their number alone."""
        if count not in self._pods:
            if len(self._pods) >= _KEPT_LISTS:
                self._pods.clear()
            request: dict[str, QuantityText] = {"cpu": f"{round(self._begin.pod_cores * 1000)}m"}
            spec = PodSpec(containers=(Container(name="app", resources=ResourceRequirements(requests=request)),))
            self._pods[count] = PodList(
                Pod(metadata=ObjectMeta(name=f"pod-{which}"), spec=spec) for which in range(count)
            )
        return self._pods[count]


class SafeHeadroom:
    """The reactive rule, raised by the learned headroom once that has proved itself."""

    def __init__(self, begin: Begin, service: ServiceBegin) -> None:
        self._plain = PlainHpa(begin, service, percent=HPA_SAFE_PERCENT)
        self._headroom = Headroom(terms_of(begin), replicas=service.replicas, floor=True)
        self._pod_cores = begin.pod_cores

    def decide(self, at_seconds: int, *, used: float, arrived: float, ready: int, asked: int) -> int:
        plain = self._plain.decide(at_seconds, used=used, arrived=arrived, ready=ready, asked=asked)
        demand = arrived / self._pod_cores
        advice = self._headroom.advise(at_seconds, demand, ready=ready, asked=asked, plain=plain)
        return max(plain, advice.replicas) if advice.proven else plain


def policy_maker(name: str) -> Callable[[Begin, ServiceBegin], Policy]:
    """Return what makes the policy of one service; raise InvalidInput where there is none of this name."""
    if name == "headroom":
        return LearnedHeadroom
    if name == "headroom-safe":
        return SafeHeadroom
    kind, _, text = name.partition(":")
    if kind == "hpa" and text.isascii() and text.isdigit() and 1 <= int(text) <= 1000:
        return lambda begin, service: PlainHpa(begin, service, percent=int(text))
    raise InvalidInput(f"{name!r} is not a policy for load: headroom, headroom-safe, or hpa:PERCENT (1 to 1000)")


class LoadSession:
    """One run of the protocol: feed it messages in order, send back what it returns."""

    def __init__(self, policy: str) -> None:
        self._make = policy_maker(policy)
        self._begin: Begin | None = None
        self._last = -1
        self._services: dict[str, tuple[int, Policy]] = {}

    def handle(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take in a message; return the answer, None where it asks for none."""
        kind = message.get("type")
        if kind == "begin":
            self._start(_read(_with_whole_services(message), Begin))
            return None
        if kind == "step":
            return {"replicas": self._decide(_read(_with_whole_services(message), Step))}
        if kind == "end":
            return None
        raise InvalidInput(f"{kind!r} is not one of begin, step, end", subject="load message", field="type")

    def _start(self, begin: Begin) -> None:
        subject = "load message begin"
        for field, low, value, high in (
            ("step", 1, begin.step, _LONGEST),
            ("start_seconds", 0, begin.start_seconds, _LONGEST),
            ("pod_cores", _LEAST_POD, begin.pod_cores, _MOST_CORES),
            ("min", 1, begin.min, _MOST_PODS),
            ("max", begin.min, begin.max, _MOST_PODS),
        ):
            if not low <= value <= high:
                raise InvalidInput(f"{value} is not between {low} and {high:.12g}", subject=subject, field=field)
        if len({one.name for one in begin.services}) < len(begin.services):
            raise InvalidInput("contains a name twice", subject=subject, field="services")
        for one in begin.services:
            check_second(one.time, subject, f"services {one.name} time")
            if not 0 <= one.replicas <= _MOST_PODS:
                raise InvalidInput(f"{one.name!r} has {one.replicas} replicas", subject=subject, field="services")
        self._begin, self._last = begin, -1
        self._services = {one.name: (one.time, self._make(begin, one)) for one in begin.services}

    def _decide(self, step: Step) -> dict[str, int]:
        if self._begin is None:
            raise InvalidInput("a step came before begin", subject="load message step")
        if step.k <= self._last:
            wrong = f"is not after {self._last}: time only goes forward" if self._last >= 0 else "is below 0"
            raise InvalidInput(f"{step.k} {wrong}", subject="load message step", field="k")
        self._last = step.k
        counts: dict[str, int] = {}
        for name, (used, arrived, ready, asked) in step.services.items():
            known = self._services.get(name)
            if known is None:
                raise InvalidInput(f"{name!r} was not in begin", subject="load message step", field="services")
            if not (0 <= used <= _MOST_CORES and 0 <= arrived <= _MOST_CORES):
                raise InvalidInput(f"{name!r} has cores that are negative, or no amount", subject="load message step")
            if not (0 <= ready <= _MOST_PODS and 0 <= asked <= _MOST_PODS):
                raise InvalidInput(f"{name!r} has pods below 0 or above {_MOST_PODS}", subject="load message step")
            begins, policy = known
            at = begins + step.k * self._begin.step
            check_second(at + self._begin.step, "load message step", "k")
            counts[name] = policy.decide(at, used=used, arrived=arrived, ready=ready, asked=asked)
        return counts


def _with_whole_services(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with its counts as integers, however they are written."""
    found = with_whole(message, _WHOLE)
    services = found.get("services")
    if isinstance(services, list):
        found["services"] = [with_whole(one, _WHOLE) if isinstance(one, dict) else one for one in services]
    elif isinstance(services, dict):
        found["services"] = {
            name: [*seen[:2], *map(whole, seen[2:])] if isinstance(seen, list) else seen
            for name, seen in services.items()
        }
    return found


def _read(message: Mapping[str, Any], form: type[_Form]) -> _Form:
    try:
        return msgspec.convert(dict(message), form)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error), subject=f"load message {message.get('type')}") from error
