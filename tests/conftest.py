"""Settings for all tests."""

from hypothesis import HealthCheck, settings

# No test asserts a time: a busy machine must not turn a law into a failure.
settings.register_profile("kubetide", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kubetide")
