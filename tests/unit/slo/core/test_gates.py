"""Feature gates: defaults by release, the last word counts, and what is reported."""

import pytest

from kubetide.slo.core.compat import VERSIONS
from kubetide.slo.core.gates import GATES, gate_enabled, gate_warnings

OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]


@pytest.mark.parametrize(
    ("entries", "name", "enabled"),
    [
        pytest.param((), "PodMutatingWebhook", True, id="on-by-default"),
        pytest.param((), "NodeMutatingWebhook", False, id="off-by-default"),
        pytest.param(("podmutatingwebhook=false",), "PodMutatingWebhook", False, id="any-case"),
        pytest.param(
            ("NodeMutatingWebhook=1", " NodeMutatingWebhook = false"), "NodeMutatingWebhook", False, id="last"
        ),
    ],
)
def test_the_last_word_about_a_gate_counts(entries: tuple[str, ...], name: str, enabled: bool) -> None:
    assert gate_enabled(entries, name, NEWEST) is enabled


def test_shared_gpus_were_counted_by_default_in_1_6_only() -> None:
    assert [gate_enabled((), "EnableSyncGPUSharedResource", version) for version in VERSIONS] == [
        False,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("entry", "reported"),
    [
        pytest.param("Nonsense=true", "not known", id="unknown"),
        pytest.param("MultiQuotaTree=true", "no effect", id="of-quotas"),
        pytest.param("MultiQuotaTree=false", "", id="switched-off-anyway"),
        pytest.param("ColocationProfileSkipValidatingPriority=true", "later than --compat 1.4", id="of-a-later-one"),
        pytest.param("ConfigMapValidatingWebhook=true", "", id="used"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_what_has_no_effect_is_reported(entry: str, reported: str) -> None:
    found = list(gate_warnings((entry,), OLDEST))
    assert reported in "".join(found)
    assert bool(found) is bool(reported)


def test_names_differ_also_without_case() -> None:
    assert len({name.lower() for name in GATES}) == len(GATES)
