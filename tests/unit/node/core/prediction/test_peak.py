"""Peak models: training, idle models, expiry, files."""

from datetime import timedelta

import pytest

from kubetide.errors import DecodeError
from kubetide.node.core.prediction import checkpoint
from kubetide.node.core.prediction.peak import NODE, SYSTEM, PeakModels, PodUsage, class_model
from unit.node.memory_host import START

GIB = 2**30


def trained(rounds: int = 10) -> PeakModels:
    models = PeakModels()
    for number in range(rounds):
        now = START + timedelta(minutes=number)
        models.train(now, [PodUsage("a", "koord-prod", 1.0, 4.0 * GIB)], 2.0, 8.0 * GIB)
    return models


def test_an_idle_class_predicts_its_first_bucket_and_not_zero() -> None:
    peaks = trained().predict(class_model("koord-free"))
    assert peaks is not None
    assert (peaks["p95"].cpu_millis, peaks["p95"].memory_bytes) == (25, 5 * 2**20)


def test_memory_above_two_gibibytes_is_predicted() -> None:
    peaks = trained().predict("a")
    assert peaks is not None
    assert 4 * GIB <= peaks["p98"].memory_bytes <= 4 * GIB * 1.06


def test_the_system_is_what_no_pod_uses() -> None:
    peaks = trained().predict(SYSTEM)
    assert peaks is not None
    assert 1000 <= peaks["p95"].cpu_millis <= 1060


def test_a_pod_without_both_values_is_not_trained() -> None:
    models = PeakModels()
    models.train(START, [PodUsage("a", "koord-prod", 1.0, None)], None, None)
    assert "a" not in models
    assert NODE not in models
    assert SYSTEM in models


def test_models_without_samples_expire() -> None:
    models = trained()
    models.train(START + timedelta(hours=1), [], 1.0, 1.0)
    assert models.expire(START + timedelta(hours=1), timedelta(minutes=30)) == ("a",)
    assert models.predict("a") is None


def test_models_never_saved_come_first_and_only_so_many_at_once() -> None:
    models = trained()
    now = START + timedelta(minutes=10)
    first = models.due_for_checkpoint(now, every=timedelta(minutes=10), at_most=3)
    for identity in first:
        models.save(identity, now)
    second = models.due_for_checkpoint(now, every=timedelta(minutes=10), at_most=100)
    assert len(first) == 3
    assert not set(first) & set(second)


def test_a_file_brings_a_model_back() -> None:
    models = trained()
    now = START + timedelta(minutes=10)
    data = checkpoint.to_json("a", *models.save("a", now), now)
    again = PeakModels()
    assert again.load("a", *checkpoint.from_json(data), now) == []
    assert again.predict("a") == models.predict("a")


def test_a_part_that_cannot_be_used_leaves_the_other() -> None:
    models = trained()
    now = START + timedelta(minutes=10)
    cpu, _ = models.save("a", now)
    again = PeakModels()
    problems = again.load("a", cpu, None, now)
    assert problems == ["Memory: missing"]
    peaks = again.predict("a")
    assert peaks is not None
    assert peaks["p95"].cpu_millis > 0
    assert peaks["p98"].memory_bytes == 0


def test_a_file_that_is_no_checkpoint_is_refused() -> None:
    with pytest.raises(DecodeError):
        checkpoint.from_json(b'{"CPU": 5}')
