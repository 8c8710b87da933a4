"""The usage side of the line protocol: told, asked, answered; nothing carried over, nothing seen ahead."""

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kubetide.cli.main import EXIT_USAGE, run_cli
from kubetide.errors import InvalidInput
from kubetide.replay.stdio import make_session, serve
from kubetide.replay.usage import UsageSession

HOUR, DAY = 3600, 86400
GIB = 2.0**30
T0 = 1_000_000_800
Message = dict[str, Any]
POLICIES = ["adaptive", "adaptive-one", "vpa", "krr", "peak", "static"]


def begin(containers: int = 3, period: int = HOUR) -> Message:
    names = [f"c{number}" for number in range(containers)]
    resources = ["cpu", "memory"]
    return {
        "type": "begin", "trace": "t0", "interval": 300, "period": period, "resources": resources, "containers": names,
    }  # fmt: skip


def story(seed: int, periods: int, containers: int = 3, period: int = HOUR) -> Iterator[list[Message]]:
    """Yield the messages of each period, `decide` last."""
    rng = np.random.default_rng(seed)
    count = period // 300
    for number in range(periods):
        at = T0 + number * period
        messages: list[Message] = []
        for container in range(containers):
            cpu = [float(value) for value in (0.2 + container) * (1.0 + 0.5 * rng.random(count))]
            memory = [float(value) for value in GIB * (1.0 + container + 0.2 * rng.random(count))]
            name = f"c{container}"
            messages.append({"type": "observe", "container": name, "time": at, "cpu": cpu, "memory": memory})
        messages.append({"type": "decide", "time": at + period})
        yield messages


def decisions(session: UsageSession, periods: Iterator[list[Message]]) -> list[dict[str, list[float]]]:
    made = []
    for messages in periods:
        for message in messages:
            answer = session.handle(message)
            if answer is not None:
                made.append(answer["decisions"])
    return made


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("period", [HOUR, DAY])
def test_every_policy_sizes_every_container(policy: str, period: int) -> None:
    session = UsageSession(policy)
    session.handle(begin(period=period))
    made = decisions(session, story(1, 9, period=period))
    last = next(decision for decision in reversed(made) if decision)
    assert sorted(last) == ["c0", "c1", "c2"]
    for number, name in enumerate(sorted(last)):
        cpu, memory, *limit = last[name]
        assert 0.2 + number <= cpu <= 3 * (0.2 + number)
        assert 0.9 * GIB * (1 + number) <= memory <= 4 * GIB * (1 + number)
        assert len(limit) == (policy == "adaptive")
        assert all(value > memory for value in limit)


def test_sizes_are_whole_millicores_and_bytes() -> None:
    session = UsageSession("adaptive")
    session.handle(begin())
    for cpu, memory, limit in decisions(session, story(2, 3))[-1].values():
        assert round(cpu * 1000) == pytest.approx(cpu * 1000, abs=1e-9)
        assert memory == int(memory)
        assert limit == int(limit)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_future_changes_no_past_decision(policy: str) -> None:
    one, other = UsageSession(policy), UsageSession(policy)
    one.handle(begin())
    other.handle(begin())
    calm, wild = list(story(3, 30)), list(story(3, 30))
    for messages in wild[20:]:
        for message in messages[:-1]:
            message["memory"] = [value * 3.0 for value in message["memory"]]
            message["cpu"] = [value * 3.0 for value in message["cpu"]]
    first, second = decisions(one, iter(calm)), decisions(other, iter(wild))
    assert first[:20] == second[:20]
    assert first[20:] != second[20:] or policy == "static"


@pytest.mark.parametrize("policy", POLICIES)
def test_begin_drops_all_that_was_learned(policy: str) -> None:
    fresh, used = UsageSession(policy), UsageSession(policy)
    used.handle(begin())
    decisions(used, story(4, 12))
    fresh.handle(begin())
    used.handle(begin())
    assert decisions(used, story(5, 12)) == decisions(fresh, story(5, 12))


def test_current_changes_nothing() -> None:
    session = UsageSession("current")
    session.handle(begin())
    assert decisions(session, story(6, 3)) == [{}, {}, {}]


def test_periods_shorter_than_an_hour_are_learned_by_the_hour() -> None:
    session = UsageSession("adaptive")
    session.handle(begin(period=900))
    made = decisions(session, story(7, 8, period=900))
    assert [bool(decision) for decision in made] == [False, False, False, True] * 2


def test_a_gap_keeps_a_container_sized() -> None:
    session = UsageSession("adaptive")
    session.handle(begin())
    periods = list(story(8, 30))
    for messages in periods[10:]:
        messages[0]["cpu"], messages[0]["memory"] = [None] * 12, [None] * 12
    last = decisions(session, iter(periods))[-1]
    assert last["c0"][0] >= 0.2
    assert last["c0"][1] >= 0.9 * GIB


@pytest.mark.parametrize("policy", ["adaptive", "adaptive-one"])
def test_a_container_that_was_never_seen_gets_what_its_neighbours_have(policy: str) -> None:
    session = UsageSession(policy)
    session.handle(begin(containers=4))
    messages = [[message for message in each if message.get("container") != "c3"] for each in story(8, 30, 4)]
    last = decisions(session, iter(messages))[-1]
    known, new = np.array([last[name] for name in ("c0", "c1", "c2")]), last["c3"]
    assert new[0] == pytest.approx(known[:, 0].mean(), abs=0.001)
    if policy == "adaptive":
        assert new[1:] == pytest.approx([known[:, 1].mean(), known[:, 2].max()], abs=1)
    else:
        assert new[1] == known[:, 1].max()
    # Its own samples decide as soon as there are any.
    *_, observed, asked = list(story(8, 31, 4))[-1]
    answer = session.handle(observed) or session.handle(asked)
    assert answer is not None
    assert answer["decisions"]["c3"][1] > 3.0 * GIB


def test_vpa_learns_from_an_oom_kill() -> None:
    session = UsageSession("vpa")
    session.handle(begin(containers=1, period=DAY))
    *_, (observed, asked) = story(9, 1, containers=1, period=DAY)
    session.handle(observed)
    session.handle({"type": "oom", "container": "c0", "time": T0 + HOUR, "limit": 2 * GIB})
    answer = session.handle(asked)
    assert answer is not None
    # 1.2 × the limit that was passed, the end of its bucket of 5 %, and the margin of 15 %.
    assert 1.2 * 1.15 * 2 * GIB <= answer["decisions"]["c0"][1] <= 1.2 * 1.15 * 1.06 * 2 * GIB


def first_observation() -> Message:
    return next(story(1, 1))[0]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        pytest.param({"type": "begun"}, "begun", id="unknown-type"),
        pytest.param({"type": "decide"}, "time", id="missing-field"),
        pytest.param({**begin(), "interval": 0}, "begin interval", id="no-interval"),
        pytest.param({**begin(), "period": 400}, "begin period", id="ragged-period"),
        pytest.param({**begin(), "resources": ["gpu"]}, "begin resources", id="unknown-resource"),
        pytest.param({**begin(), "containers": ["a", "a"]}, "begin containers", id="same-name-twice"),
        pytest.param({**begin(), "interval": 7, "period": 7}, "interval", id="interval-does-not-fit-an-hour"),
        pytest.param({**first_observation(), "container": "who"}, "who", id="unknown-container"),
        pytest.param({**first_observation(), "cpu": [0.1]}, "c0 cpu", id="too-few-samples"),
        pytest.param({**first_observation(), "cpu": None}, "c0 cpu", id="no-samples"),
        pytest.param({**first_observation(), "memory": [-1.0] * 12}, "c0 memory", id="negative-sample"),
        pytest.param({**first_observation(), "memory": [1e300] * 12}, "c0 memory: .*above", id="no-amount"),
        pytest.param({**first_observation(), "time": -1}, "c0 time: -1 is not a second", id="before-1970"),
        pytest.param({**first_observation(), "time": 10**15}, "c0 time: .*from 1970 to 9999", id="after-9999"),
        pytest.param({**first_observation(), "time": 1.5}, "time", id="half-a-second"),
        pytest.param({"type": "decide", "time": 10**20}, "decide time: .*from 1970 to 9999", id="decide-after-9999"),
        pytest.param({"type": "oom", "container": "c0", "time": T0, "limit": -1.0}, "c0 limit", id="negative-limit"),
        pytest.param({"type": "oom", "container": "c0", "time": -T0, "limit": 1.0}, "c0 time", id="oom-before-1970"),
        pytest.param({**begin(), "period": 300 * 10**9}, "begin period: .*a year", id="period-of-ages"),
        pytest.param({**first_observation(), "memory": ["much"] * 12}, "memory", id="text-for-a-number"),
    ],
)
def test_a_message_that_cannot_be_meant_is_refused(message: Message, text: str) -> None:
    session = UsageSession("adaptive")
    session.handle(begin())
    with pytest.raises(InvalidInput, match=text):
        session.handle(message)


def test_nothing_is_told_before_begin() -> None:
    with pytest.raises(InvalidInput, match="begin"):
        UsageSession("krr").handle({"type": "decide", "time": T0})


def test_time_only_goes_forward() -> None:
    session = UsageSession("peak")
    session.handle(begin(containers=1))
    (observed, asked), (later, then) = story(1, 2, containers=1)
    session.handle(observed)
    with pytest.raises(InvalidInput, match="c0 time: is observed twice before `decide`"):
        session.handle(later)
    session.handle(asked)
    with pytest.raises(InvalidInput, match=f"c0 time: {T0} is not after {T0}"):
        session.handle(observed)
    with pytest.raises(InvalidInput, match=r"decide time: .* is not after"):
        session.handle(asked)
    session.handle(later)
    assert session.handle(then) is not None


@pytest.mark.parametrize("policy", POLICIES)
def test_whole_numbers_are_times_however_they_are_written(policy: str) -> None:
    plain, floats = UsageSession(policy), UsageSession(policy)
    plain.handle(begin())
    floats.handle({**begin(), "interval": 300.0, "period": 3.6e3})
    for messages in story(3, 4):
        for message in messages:
            assert floats.handle({**message, "time": float(message["time"])}) == plain.handle(message)


@pytest.mark.parametrize("policy", [*POLICIES, "current"])
def test_nobody_to_size_is_nobody_sized(policy: str) -> None:
    session = UsageSession(policy)
    session.handle(begin(containers=0))
    assert session.handle({"type": "decide", "time": T0}) == {"decisions": {}}


def test_an_oom_kill_counts_without_samples_in_its_period() -> None:
    session = UsageSession("vpa")
    session.handle(begin(containers=1, period=DAY))
    session.handle({"type": "oom", "container": "c0", "time": T0 + HOUR, "limit": 2 * GIB})
    answer = session.handle({"type": "decide", "time": T0 + DAY})
    assert answer is not None
    assert answer["decisions"]["c0"][1] >= 1.2 * 1.15 * 2 * GIB


def test_lines_are_answered_until_the_end() -> None:
    lines = [json.dumps(message).encode() + b"\n" for message in (begin(), *next(story(1, 1)), {"type": "end"})]
    answers = io.BytesIO()
    serve(make_session("usage", "peak"), [*lines, b"never read\n"], answers)
    (answer,) = answers.getvalue().splitlines()
    assert sorted(json.loads(answer)["decisions"]) == ["c0", "c1", "c2"]


@pytest.mark.parametrize("line", [b"{", b"[]\n", b'{"type":"begin"}\n'])
def test_a_bad_line_is_named_by_its_number(line: bytes) -> None:
    with pytest.raises(InvalidInput, match="line 2"):
        serve(make_session("usage", "peak"), [b"\n", line], io.BytesIO())


def test_an_unknown_policy_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["replay", "--stdio", "usage", "--policy", "wishful"]) == EXIT_USAGE
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1
    assert "wishful" in error[0]
    assert "adaptive-one" in error[0]
