"""Model files: restored by name, removed when they belong to nobody, never half written."""

import asyncio
from datetime import timedelta
from pathlib import Path

from kubetide.api.objects.core import Pod
from kubetide.api.qos.cgroups import CgroupPaths
from kubetide.api.values.codec import convert
from kubetide.node.core.prediction.peak import NODE, PodUsage
from kubetide.node.core.series.ring import Ring
from kubetide.node.core.series.store import SeriesStore
from kubetide.node.core.snapshot import PodState, pod_state
from kubetide.node.prediction_trainer import Prediction
from kubetide.node.settings import NodeSettings
from unit.node.memory_host import ManualClock


def pod(uid: str) -> PodState:
    return pod_state(convert({"metadata": {"name": uid, "namespace": "x", "uid": uid}}, Pod), CgroupPaths())


def prediction(path: Path, clock: ManualClock, *uids: str) -> Prediction:
    settings = NodeSettings(prediction_checkpoint_filepath=str(path))
    return Prediction(settings, clock, SeriesStore(Ring()), lambda: tuple(pod(uid) for uid in uids))


def saved(path: Path, clock: ManualClock) -> Prediction:
    found = prediction(path, clock, "a")
    found.models.train(clock.now(), [PodUsage("a", "koord-prod", 1.0, 1e9)], 2.0, 2e9)
    found.save_some()
    return found


def test_models_come_back_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    before = saved(tmp_path, clock)
    after = prediction(tmp_path, clock, "a")
    asyncio.run(after.restore())
    assert after.models.predict("a") == before.models.predict("a")
    assert NODE in after.models


def test_files_of_nobody_and_half_files_are_removed(tmp_path: Path) -> None:
    clock = ManualClock()
    saved(tmp_path, clock)
    (tmp_path / "a.tmp").write_text("{")
    (tmp_path / "stranger").write_text("{}")
    (tmp_path / NODE).write_text("not json")
    after = prediction(tmp_path, clock)
    asyncio.run(after.restore())
    names = {path.name for path in tmp_path.iterdir()}
    assert not names & {"a", "a.tmp", "stranger", NODE}


def test_an_expired_model_takes_its_file_along(tmp_path: Path) -> None:
    clock = ManualClock()
    found = saved(tmp_path, clock)
    clock.advance(timedelta(minutes=31).total_seconds())
    found.models.train(clock.now(), [], 1.0, 1.0)
    found.expire()
    assert not (tmp_path / "a").exists()
    assert (tmp_path / NODE).exists()


def test_a_name_that_is_a_path_is_never_written(tmp_path: Path) -> None:
    clock = ManualClock()
    found = prediction(tmp_path / "models", clock)
    (tmp_path / "models").mkdir()
    found.models.train(clock.now(), [PodUsage("../evil", "koord-prod", 1.0, 1e9)], 2.0, 2e9)
    found.save_some()
    assert not (tmp_path / "evil").exists()


def test_a_directory_that_cannot_be_read_removes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("not a directory")
    asyncio.run(prediction(place, ManualClock()).restore())
    assert place.read_text() == "not a directory"
