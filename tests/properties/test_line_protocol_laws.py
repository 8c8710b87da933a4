"""Laws of the line protocol: names, order and calendar weeks decide nothing, and runs do not know of each other.

The order of containers in `begin` is part of what `adaptive` is told: it places them on imagined nodes in that order.
For all other policies it decides nothing either.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.replay.stdio import Session, make_session

GIB = 2.0**30
HOUR, WEEK = 3600, 604800
T0 = 2400 * WEEK + 7 * HOUR
PERIODS, COUNT, SIZE = 26, 12, 7
SIZES = ["adaptive", "adaptive-one", "vpa", "krr", "peak", "static"]
COUNTS = ["hpa:70", "headroom", "headroom-safe"]
Message = dict[str, Any]
Answers = list[dict[str, Any]]
seeds = st.integers(0, 2**32 - 1)


def story(seed: int, *, shift: int = 0, factor: float = 1.0) -> list[Message]:
    """Some hours of containers that come late, pause, jump and are OOM killed; one of them never reports."""
    rng = np.random.default_rng(seed)
    level, late = 0.1 + rng.random(SIZE), rng.integers(0, PERIODS // 2, SIZE)
    messages: list[Message] = []
    for number in range(PERIODS):
        at = T0 + shift + number * HOUR
        for container in range(SIZE - 1):
            if number < late[container]:
                continue
            cpu = level[container] * (1.0 + rng.random(COUNT)) * (5.0 if rng.random() < 0.1 else 1.0)
            memory = np.floor(GIB * (1.0 + 2.0 * cpu)) * factor
            gone = rng.random(COUNT) < 0.1
            message: Message = {"type": "observe", "container": f"c{container}", "time": at}
            message["cpu"] = [None if lost else value for lost, value in zip(gone, cpu.tolist(), strict=True)]
            message["memory"] = [None if lost else value for lost, value in zip(gone, memory.tolist(), strict=True)]
            messages.append(message)
            if rng.random() < 0.05:
                limit = float(memory[3])
                messages.append({"type": "oom", "container": f"c{container}", "time": at + 900, "limit": limit})
        messages.append({"type": "decide", "time": at + HOUR})
    return messages


def begin(order: Sequence[int] = tuple(range(SIZE))) -> Message:
    names = [f"c{number}" for number in order]
    return {"type": "begin", "interval": 300, "period": HOUR, "resources": ["cpu", "memory"], "containers": names}


def tell(session: Session, messages: Sequence[Message]) -> Answers:
    return [answer for message in messages if (answer := session.handle(message)) is not None]


def shuffled(messages: Sequence[Message], seed: int) -> list[Message]:
    """Return the same periods with the lines of each in another order, `decide` last."""
    rng = np.random.default_rng(seed)
    found: list[Message] = []
    period: list[Message] = []
    for message in messages:
        if message["type"] == "decide":
            found += [period[place] for place in rng.permutation(len(period))] + [message]
            period = []
        else:
            period.append(message)
    return found


@pytest.mark.parametrize("policy", SIZES)
@settings(max_examples=2, deadline=None)
@given(seeds)
def test_the_order_of_lines_in_a_period_decides_nothing(policy: str, seed: int) -> None:
    plain = tell(make_session("usage", policy), [begin(), *story(seed)])
    assert tell(make_session("usage", policy), [begin(), *shuffled(story(seed), seed)]) == plain


@pytest.mark.parametrize("policy", SIZES)
@settings(max_examples=2, deadline=None)
@given(seeds)
def test_names_decide_nothing(policy: str, seed: int) -> None:
    plain = tell(make_session("usage", policy), [begin(), *story(seed)])
    named = [begin(), *story(seed)]
    named[0]["containers"] = [f"{name} ünïcode/{name!r}" for name in named[0]["containers"]]
    for message in named:
        if "container" in message:
            message["container"] = f"{message['container']} ünïcode/{message['container']!r}"
    answers = tell(make_session("usage", policy), named)
    assert [list(each["decisions"].values()) for each in answers] == [list(x["decisions"].values()) for x in plain]


@pytest.mark.parametrize("policy", ["vpa", "krr", "peak", "static"])
@settings(max_examples=2, deadline=None)
@given(seeds)
def test_the_order_of_containers_decides_nothing(policy: str, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(SIZE).tolist()
    plain = tell(make_session("usage", policy), [begin(), *story(seed)])
    assert tell(make_session("usage", policy), [begin(order), *story(seed)]) == plain


@pytest.mark.parametrize("policy", SIZES)
@settings(max_examples=2, deadline=None)
@given(seeds, st.integers(-1500, 1500))
def test_whole_weeks_change_nothing(policy: str, seed: int, weeks: int) -> None:
    plain = tell(make_session("usage", policy), [begin(), *story(seed)])
    assert tell(make_session("usage", policy), [begin(), *story(seed, shift=weeks * WEEK)]) == plain


@pytest.mark.parametrize("policy", SIZES)
@settings(max_examples=2, deadline=None)
@given(seeds)
def test_twice_the_memory_is_twice_the_request(policy: str, seed: int) -> None:
    # All usage is above 1 GiB, so that no floor binds. Sizes of `vpa` are ends of buckets that grow by 5 %.
    loose = 0.0501 if policy == "vpa" else 1e-8
    once = tell(make_session("usage", policy), [begin(), *story(seed)])
    twice = tell(make_session("usage", policy), [begin(), *story(seed, factor=2.0)])
    seen = {message["container"] for message in story(seed) if "container" in message}
    for one, two in zip(once[-1]["decisions"].items(), twice[-1]["decisions"].items(), strict=True):
        if one[0] in seen:
            assert two[1][1:] == pytest.approx([2.0 * amount for amount in one[1][1:]], rel=loose)
            assert two[1][0] == one[1][0]


@pytest.mark.parametrize(("kind", "policies"), [("usage", SIZES), ("load", COUNTS)])
def test_runs_in_one_process_do_not_know_of_each_other(kind: str, policies: list[str]) -> None:
    for policy in policies:
        messages = [begin(), *story(1)] if kind == "usage" else [services(2), *steps(1, 2)]
        alone = tell(make_session(kind, policy), messages)
        sessions = [make_session(kind, policy) for _ in range(2)]
        found: list[Answers] = [[], []]
        other = [begin(), *story(2)] if kind == "usage" else [services(2), *steps(2, 2)]
        for mine, theirs in zip(messages, other, strict=False):
            for place, message in enumerate((mine, theirs)):
                if (answer := sessions[place].handle(message)) is not None:
                    found[place].append(answer)
        assert found[0] == alone[: len(found[0])]
        assert found[0]


# ---------------------------------------------------------------------- replica counts


def services(count: int, *, shift: int = 0, order: Sequence[int] = (), least: int = 1, most: int = 50) -> Message:
    listed = [{"name": f"s{at}", "time": T0 + shift, "replicas": 3} for at in order or range(count)]
    fixed = {"step": 60, "start_seconds": 300, "pod_cores": 0.5, "min": least, "max": most}
    return {"type": "begin", **fixed, "services": listed}


def steps(seed: int, count: int) -> list[Message]:
    """Demand that rests at 0 for hours, jumps far beyond what pods can do, and moves between."""
    rng = np.random.default_rng(seed)
    levels = rng.choice([0.0, 0.0, 2.0, 5.0, 1e4], size=(8, count)).repeat(40, axis=0) * (0.9 + 0.2 * rng.random())
    return [
        {"type": "step", "k": k, "services": {f"s{at}": [min(x, 5.0), x, 10, 10] for at, x in enumerate(row)}}
        for k, row in enumerate(levels.tolist())
    ]


@pytest.mark.parametrize("policy", COUNTS)
@settings(max_examples=2, deadline=None)
@given(seeds, st.integers(-1500, 1500))
def test_neither_weeks_nor_neighbours_nor_their_order_change_counts(policy: str, seed: int, weeks: int) -> None:
    told = steps(seed, 3)
    plain = tell(make_session("load", policy), [services(3), *told])
    moved = services(3, shift=weeks * WEEK, order=(2, 0, 1))
    backwards = [{**step, "services": dict(reversed(step["services"].items()))} for step in told]
    assert tell(make_session("load", policy), [moved, *backwards]) == plain
    alone = [{**step, "services": {"s1": step["services"]["s1"]}} for step in told]
    found = tell(make_session("load", policy), [services(3, order=(1,)), *alone])
    assert [each["replicas"]["s1"] for each in found] == [each["replicas"]["s1"] for each in plain]


@pytest.mark.parametrize("policy", COUNTS)
@settings(max_examples=2, deadline=None)
@given(seeds, st.integers(1, 40))
def test_counts_stay_within_their_bounds(policy: str, seed: int, least: int) -> None:
    fixed = tell(make_session("load", policy), [services(2, least=least, most=least), *steps(seed, 2)])
    assert {count for each in fixed for count in each["replicas"].values()} == {least}
    free = tell(make_session("load", policy), [services(2, least=least, most=60), *steps(seed, 2)])
    assert all(least <= count <= 60 for each in free for count in each["replicas"].values())
