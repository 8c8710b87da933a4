"""The line protocol for replica counts."""

import math
from typing import Any

import pytest

from kubetide.errors import InvalidInput
from kubetide.replay.load import LoadSession

BEGIN: dict[str, Any] = {
    "type": "begin",
    "step": 15,
    "start_seconds": 30,
    "pod_cores": 1.0,
    "min": 1,
    "max": 200,
    "services": [{"name": "s0", "time": 1_700_000_000, "replicas": 6}],
}


def begun(policy: str, **change: Any) -> LoadSession:
    session = LoadSession(policy)
    assert session.handle({**BEGIN, **change}) is None
    return session


def step(k: int, *seen: float, name: str = "s0") -> dict[str, Any]:
    return {"type": "step", "k": k, "services": {name: list(seen)}}


def demands(count: int) -> list[float]:
    state, out = 7, []
    for which in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        out.append(4 + 6 * ((which // 40) % 3) + 3 * state / 2**31)
    return out


def run(policy: str, wanted: list[float]) -> list[int]:
    """Close the loop: pods serve two steps after they are asked for, and what they cannot do waits."""
    session = begun(policy)
    asked = ready = 6
    starting, queue, counts = [0, 0], 0.0, []
    for k, demand in enumerate(wanted):
        ready += starting.pop(0)
        starting.append(0)
        work = queue + demand
        used = min(work, float(ready))
        queue = work - used
        answer = session.handle(step(k, used, demand, ready, asked))
        assert answer is not None
        count = answer["replicas"]["s0"]
        surplus = max(0, asked - count)
        starting[-1] += max(0, count - asked)
        for place in (1, 0):
            given_up = min(surplus, starting[place])
            starting[place] -= given_up
            surplus -= given_up
        ready -= surplus
        asked = count
        counts.append(count)
    return counts


class WrittenOut:
    """The HPA rule at 70 % for equal pods of one core, spelt out."""

    def __init__(self) -> None:
        self.past, self.used = [6] * 20, [0.0, 0.0, 0.0]

    def decide(self, used: float, ready: int, asked: int) -> int:
        self.used = [*self.used[1:], used]
        usage = round((self.used[0] + self.used[1]) * 500) / 1000
        ratio = math.floor(round(usage * 100 / ready, 6)) / 70
        if ratio > 1 and asked > ready:
            filled = math.floor(round(usage * 100 / asked, 6)) / 70
            proposal = asked if filled <= 1.1 else math.ceil(round(filled * asked, 9))
        else:
            proposal = asked if 0.9 <= ratio <= 1.1 else math.ceil(round(ratio * ready, 9))
        stable = max(proposal, *self.past)
        self.past = [*self.past[1:], proposal]
        return max(1, min(stable, max(2 * asked, 4), 200))


def test_hpa_70_is_the_rule_as_it_is_written_down() -> None:
    session, written = begun("hpa:70"), WrittenOut()
    asked = ready = 6
    for k, demand in enumerate(demands(300)):
        used = min(demand, float(ready))
        answer = session.handle(step(k, used, demand, ready, asked))
        expected = written.decide(used, ready, asked)
        assert answer == {"replicas": {"s0": expected}}, k
        ready = min(asked, expected)
        asked = expected


def test_headroom_counts_arrivals_and_not_saturated_cpu() -> None:
    wanted = [5.0] * 300 + [30.0] * 6
    learned, reactive = run("headroom", wanted), run("hpa:70", wanted)
    assert learned[300] >= 30
    assert reactive[300] < 10


def test_headroom_needs_fewer_replicas_than_the_hpa_on_calm_load() -> None:
    wanted = [10.0] * 600
    assert sum(run("headroom", wanted)[300:]) < sum(run("hpa:70", wanted)[300:])


def test_the_safe_one_is_never_below_the_hpa() -> None:
    session, plain = begun("headroom-safe"), begun("hpa:70")
    raised = 0
    asked = ready = 6
    for k, demand in enumerate(demands(900)):
        used = min(demand, float(ready))
        safe = session.handle(step(k, used, demand, ready, asked))
        rule = plain.handle(step(k, used, demand, ready, asked))
        assert safe is not None
        assert rule is not None
        count, least = safe["replicas"]["s0"], rule["replicas"]["s0"]
        assert count >= least
        assert k >= 240 or count == least
        raised += count > least
        ready = min(asked, count)
        asked = count
    assert raised > 0


def test_nothing_is_carried_from_one_session_to_the_next() -> None:
    assert run("headroom", demands(400)) == run("headroom", demands(400))


def test_services_do_not_influence_each_other_and_may_end_early() -> None:
    both = begun("headroom", services=[{"name": name, "time": 0, "replicas": 6} for name in ("a", "b")])
    alone = begun("headroom", services=[{"name": "a", "time": 0, "replicas": 6}])
    for k, demand in enumerate(demands(120)):
        seen: dict[str, Any] = {"a": [demand, demand, 12, 12]}
        only = alone.handle({"type": "step", "k": k, "services": seen})
        if k < 60:
            seen = {**seen, "b": [1.0, 50.0, 1, 1]}
        answer = both.handle({"type": "step", "k": k, "services": seen})
        assert answer is not None
        assert only is not None
        assert answer["replicas"]["a"] == only["replicas"]["a"]
        assert set(answer["replicas"]) == set(seen)


def test_the_end_asks_for_nothing() -> None:
    assert begun("headroom").handle({"type": "end"}) is None


@pytest.mark.parametrize("policy", ["", "hpa", "hpa:", "hpa:0", "hpa:x", "hpa:-5", "hpa:²", "oracle", "headroom:1"])
def test_an_unknown_policy_is_refused_by_name(policy: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not a policy for load: headroom, headroom-safe, or hpa:PERCENT"):
        LoadSession(policy)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        pytest.param({}, r"load message type: None is not one of", id="no-type"),
        pytest.param({**BEGIN, "step": 0}, r"begin step: 0 is not between 1 and 86400", id="no-step"),
        pytest.param({**BEGIN, "max": 0}, r"begin max: 0 is not between 1 and 100000", id="crossed-bounds"),
        pytest.param({**BEGIN, "max": 10**9}, r"begin max: 1000000000 is not between", id="absurd-maximum"),
        pytest.param({**BEGIN, "start_seconds": -30}, r"begin start_seconds: -30", id="start-before-it-is-asked"),
        pytest.param({**BEGIN, "pod_cores": 1e-9}, r"begin pod_cores: 1e-09", id="pods-of-nothing"),
        pytest.param({**BEGIN, "services": BEGIN["services"] * 2}, r"services: contains a name twice", id="twice"),
        pytest.param(
            {**BEGIN, "services": [{"name": "a", "time": 10**13, "replicas": 1}]},
            r"services a time: 10000000000000 is not a second from 1970 to 9999",
            id="after-the-year-9999",
        ),
        pytest.param(
            {**BEGIN, "services": [{"name": "a", "time": 0, "replicas": -1}]}, r"'a' has -1 replicas", id="below-0"
        ),
        pytest.param({"type": "begin"}, r"load message begin: .*step", id="fields-missing"),
        pytest.param({**BEGIN, "services": [{"name": "a"}]}, r"services\[0\]", id="service-without-time"),
        pytest.param(step(0, 1.0, 1.0, 1, 1), r"a step came before begin", id="step-first"),
    ],
)
def test_a_bad_message_is_one_clear_line(message: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as found:
        LoadSession("headroom").handle(message)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("services", "says"),
    [
        pytest.param({"other": [1, 1, 1, 1]}, "'other' was not in begin", id="unknown"),
        pytest.param({"s0": [1, 1, 1]}, r"load message step: .*\$\.services", id="too-short"),
        pytest.param({"s0": [1, math.nan, 1, 1]}, "'s0' has cores that are negative, or no amount", id="nan"),
        pytest.param({"s0": [1, -1.0, 1, 1]}, "'s0' has cores that are negative, or no amount", id="negative"),
        pytest.param({"s0": [1, 1e300, 1, 1]}, "'s0' has cores that are negative, or no amount", id="absurd"),
        pytest.param({"s0": [1, 1, 1, 10**8]}, "'s0' has pods below 0 or above 100000", id="too-many-pods"),
        pytest.param({"s0": [1, None, 1, 1]}, r"load message step: .*\$\.services", id="null"),
    ],
)
def test_a_bad_step_names_what_is_wrong(services: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        begun("headroom").handle({"type": "step", "k": 0, "services": services})


def test_steps_only_go_forward() -> None:
    session = begun("hpa:70")
    session.handle(step(5, 1, 1, 6, 6))
    for k in (5, 4):
        with pytest.raises(InvalidInput, match=f"load message step k: {k} is not after 5"):
            session.handle(step(k, 1, 1, 6, 6))
    with pytest.raises(InvalidInput, match=r"load message step k: .* is not a second from 1970 to 9999"):
        session.handle(step(10**13, 1, 1, 6, 6))
    with pytest.raises(InvalidInput, match="load message step k: -1 is below 0"):
        begun("hpa:70").handle(step(-1, 1, 1, 6, 6))


@pytest.mark.parametrize("policy", ["hpa:70", "headroom", "headroom-safe"])
def test_whole_numbers_are_counts_however_they_are_written(policy: str) -> None:
    plain, floats = begun(policy), LoadSession(policy)
    services = [{"name": "s0", "time": 1.7e9, "replicas": 6.0}]
    floats.handle({**BEGIN, "step": 15.0, "start_seconds": 3e1, "min": 1.0, "max": 2e2, "services": services})
    for k, demand in enumerate(demands(50)):
        expected = plain.handle(step(k, demand, demand, 6, 6))
        assert floats.handle(step(k, demand, demand, 6.0, 6.0) | {"k": float(k)}) == expected
