"""Settings for all tests."""

import gc
import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# No test asserts a time: a busy machine must not turn a law into a failure. Nor must chance: the same tree gives the
# same examples. To look for new ones: HYPOTHESIS_PROFILE=explore.
settings.register_profile(
    "kubetide", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "kubetide"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start background jobs that way, and what tests start would inherit it and never hear of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

SOCKET_TIERS = {"http", "e2e", "prom", "cri"}
SLOW_TIERS = ("vm", "soak", "scenarios", "cluster", "e2e", "http")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, so that no worker is left alone with it at the end."""
    order = {tier: place for place, tier in enumerate(SLOW_TIERS)}
    items.sort(key=lambda item: order.get(item.path.parent.name, len(order)))


@pytest.fixture(autouse=True, scope="module")
def leaks_are_charged_to_the_module_that_made_them(request: pytest.FixtureRequest) -> Iterator[None]:
    """Find a forgotten socket here, not at a random later moment in a test that has nothing to do with it."""
    yield
    if request.path.parent.name in SOCKET_TIERS:
        gc.collect()


@pytest.fixture(autouse=True)
def logging_is_put_back() -> Iterator[None]:
    """Undo what a command configured in this process: the next test listens to logs in its own way."""
    own, root = logging.getLogger("kubetide"), logging.getLogger()
    before = list(own.handlers), own.propagate, own.level, list(root.handlers)
    yield
    own.handlers[:], own.propagate = before[0], before[1]
    own.setLevel(before[2])
    root.handlers[:] = before[3]
