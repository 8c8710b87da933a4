"""Laws of the work queue under any order of calls."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kubetide.kube.control.workqueue import URGENT_IN_A_ROW, QueueState

KEYS = st.sampled_from("abcd")


class QueueMachine(RuleBasedStateMachine):
    """Compares the queue with a plain description of what it owes."""

    def __init__(self) -> None:
        super().__init__()
        self.state: QueueState[str] = QueueState()
        self.now = 0.0
        self.owed: set[str] = set()
        self.later: dict[str, float] = {}
        self.running: set[str] = set()
        self.urgent: set[str] = set()
        self.in_a_row = 0

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.state.add(key)
        self.owed.add(key)

    @rule(key=KEYS)
    def add_urgently(self, key: str) -> None:
        self.state.add(key, urgent=True)
        self.owed.add(key)
        self.urgent.add(key)

    @rule(key=KEYS, delay=st.integers(0, 20))
    def add_later(self, key: str, delay: int) -> None:
        self.state.add_at(key, self.now + delay, self.now)
        if delay == 0:
            self.owed.add(key)
        else:
            self.later[key] = min(self.later.get(key, float("inf")), self.now + delay)

    @rule(seconds=st.integers(1, 15))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        for key in [key for key, due in self.later.items() if due <= self.now]:
            del self.later[key]
            self.owed.add(key)
        taken = self.state.take(self.now)
        available = self.owed - self.running
        if taken is None:
            assert not available
        else:
            assert taken in available
            if taken in self.urgent:
                assert available <= self.urgent or self.in_a_row < URGENT_IN_A_ROW
                self.in_a_row += 1
            else:
                assert not available & self.urgent or self.in_a_row >= URGENT_IN_A_ROW
                self.in_a_row = 0
            self.owed.discard(taken)
            self.urgent.discard(taken)
            self.running.add(taken)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        self.state.done(key)
        self.running.discard(key)

    @invariant()
    def the_next_timer_is_the_earliest_delay(self) -> None:
        assert self.state.next_due() == (min(self.later.values()) if self.later else None)

    @invariant()
    def what_is_urgent_is_owed_first(self) -> None:
        assert set(self.state.urgent) == self.urgent - self.running
        assert self.state.pressing <= self.running

    @invariant()
    def no_key_is_with_two_workers(self) -> None:
        assert self.state.running == len(self.running)


TestQueue = QueueMachine.TestCase
