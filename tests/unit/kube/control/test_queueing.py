"""The work queue's state: one worker per key, nothing lost, nothing doubled."""

from kubetide.kube.control.workqueue import QueueState
from kubetide.kube.pacing import Backoff


def test_keys_come_out_in_the_order_they_went_in() -> None:
    state: QueueState[str] = QueueState()
    for key in "abc":
        state.add(key)
    assert [state.take(0), state.take(0), state.take(0), state.take(0)] == ["a", "b", "c", None]


def test_adding_twice_is_adding_once() -> None:
    state: QueueState[str] = QueueState()
    state.add("a")
    state.add("a")
    assert len(state) == 1
    assert state.take(0) == "a"
    assert state.take(0) is None


def test_a_key_added_while_it_is_worked_on_comes_again_afterwards() -> None:
    state: QueueState[str] = QueueState()
    state.add("a")
    assert state.take(0) == "a"
    state.add("a")
    assert state.take(0) is None
    state.done("a")
    assert state.take(0) == "a"


def test_a_delayed_key_waits_for_its_time() -> None:
    state: QueueState[str] = QueueState()
    state.add_at("a", 10, now=0)
    assert state.next_due() == 10
    assert state.take(9.99) is None
    assert state.take(10) == "a"
    assert state.next_due() is None


def test_the_earlier_of_two_delays_counts() -> None:
    state: QueueState[str] = QueueState()
    state.add_at("a", 10, now=0)
    state.add_at("a", 5, now=0)
    state.add_at("a", 20, now=0)
    assert state.next_due() == 5
    assert state.take(5) == "a"
    state.done("a")
    assert state.take(100) is None


def test_a_delay_in_the_past_is_now() -> None:
    state: QueueState[str] = QueueState()
    state.add_at("a", 1, now=2)
    assert state.take(2) == "a"


def test_failures_double_the_delay_up_to_the_cap_until_forgotten() -> None:
    state: QueueState[str] = QueueState(Backoff(base=1, factor=2, cap=5, jitter=0))
    delays = []
    for _ in range(4):
        delays.append(state.add_failed("a", now=0))
        assert state.take(1000) == "a"
        state.done("a")
    assert delays == [1, 2, 4, 5]
    state.forget("a")
    assert state.failures("a") == 0
    assert state.add_failed("a", now=0) == 1


def test_one_key_failing_does_not_delay_another() -> None:
    state: QueueState[str] = QueueState(Backoff(base=100, jitter=0))
    state.add_failed("a", now=0)
    state.add("b")
    assert state.take(0) == "b"
