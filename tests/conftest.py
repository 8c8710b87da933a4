"""Settings for all tests."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# No test asserts a time: a busy machine must not turn a law into a failure.
settings.register_profile("kubetide", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kubetide")

SOCKET_TIERS = {"http", "e2e", "prom", "cri"}


@pytest.fixture(autouse=True, scope="module")
def leaks_are_charged_to_the_module_that_made_them(request: pytest.FixtureRequest) -> Iterator[None]:
    """Find a forgotten socket here, not at a random later moment in a test that has nothing to do with it."""
    yield
    if request.path.parent.name in SOCKET_TIERS:
        gc.collect()
