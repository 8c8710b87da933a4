"""Which changes are news."""

import pytest

from kubetide.api.objects.meta import ObjectKey
from kubetide.kube.cache.versions import OVERLAP, Versions, newer

KEY, OTHER = ObjectKey("x", "a"), ObjectKey("x", "b")


@pytest.mark.parametrize(
    ("version", "than", "expected"),
    [
        pytest.param("10", "9", True, id="by-number-not-by-text"),
        pytest.param("9", "10", False, id="older"),
        pytest.param("9", "9", False, id="same"),
        pytest.param("abc", "abd", True, id="opaque-and-different"),
        pytest.param("abc", "abc", False, id="opaque-and-same"),
    ],
)
def test_versions_are_compared_as_numbers_where_they_are_numbers(version: str, than: str, expected: bool) -> None:
    assert newer(version, than) is expected


def test_what_the_list_already_held_is_no_news() -> None:
    versions = Versions()
    versions.start("100")
    assert not versions.accept(KEY, "99", "", deleted=False)
    assert not versions.accept(KEY, "100", "", deleted=False)
    assert versions.accept(KEY, "101", "", deleted=False)


def test_a_repeated_change_is_no_news() -> None:
    versions = Versions()
    versions.start("100")
    assert versions.accept(KEY, "105", "101", deleted=False)
    assert not versions.accept(KEY, "105", "105", deleted=False)
    assert not versions.accept(KEY, "103", "105", deleted=False)


def test_a_late_change_of_another_object_is_news() -> None:
    versions = Versions()
    versions.start("100")
    assert versions.accept(KEY, "107", "", deleted=False)
    assert versions.accept(OTHER, "106", "", deleted=False)
    assert versions.latest == "107"


def test_a_deleted_object_does_not_come_back_by_an_older_change() -> None:
    versions = Versions()
    versions.start("100")
    assert versions.accept(KEY, "110", "101", deleted=True)
    assert not versions.accept(KEY, "105", "", deleted=False)
    assert versions.accept(KEY, "111", "", deleted=False)


def test_a_late_deletion_does_not_remove_what_was_made_anew() -> None:
    versions = Versions()
    versions.start("100")
    assert not versions.accept(KEY, "110", "112", deleted=True)


def test_forgetting_a_deletion_does_not_open_the_door_to_older_changes() -> None:
    versions = Versions(remembered=1)
    versions.start("100")
    assert versions.accept(KEY, "110", "101", deleted=True)
    assert versions.accept(OTHER, "120", "101", deleted=True)
    assert not versions.accept(KEY, "105", "", deleted=False)


def test_a_stream_is_taken_up_where_the_server_last_vouched_for_everything() -> None:
    versions = Versions()
    versions.start("100")
    versions.accept(KEY, "110", "", deleted=False)
    assert (versions.resume, versions.latest) == ("100", "110")
    versions.vouch("115")
    assert versions.resume == "115"
    versions.vouch("")
    assert versions.resume == "115"


def test_a_long_stream_is_taken_up_a_little_before_its_end() -> None:
    versions = Versions()
    versions.start("100")
    for version in range(101, 201):
        versions.accept(ObjectKey("x", str(version)), str(version), "", deleted=False)
    assert versions.resume == str(200 - OVERLAP)


def test_a_change_that_was_overtaken_moves_the_point_of_return_back() -> None:
    versions = Versions()
    versions.start("100")
    for version in (*range(110, 131), 105):
        versions.accept(ObjectKey("x", str(version)), str(version), "", deleted=False)
    assert versions.resume == "105"
