"""The lease that says that the webhook works, and when certificates are renewed."""

from datetime import UTC, datetime, timedelta

import pytest

from kubetide.api.objects.core import Lease, LeaseSpec
from kubetide.api.objects.meta import ObjectMeta
from kubetide.kube.certificate_rotation import Lifetimes, Rotation, next_rotation
from kubetide.vpa.admission.core.heartbeat import annotations, read_heartbeat

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def lease(*, created: float = 600, renewed: float | None = 5, holder: str = "ours", **notes: str) -> Lease:
    return Lease(
        metadata=ObjectMeta(
            creation_timestamp=NOW - timedelta(seconds=created),
            annotations={f"kubetide.io/{key.replace('_', '-')}": value for key, value in notes.items()},
        ),
        spec=LeaseSpec(
            renew_time=None if renewed is None else NOW - timedelta(seconds=renewed), holder_identity=holder
        ),
    )


@pytest.mark.parametrize(
    ("given", "fine"),
    [
        pytest.param(lease(renewed=5), True, id="renewed"),
        pytest.param(lease(renewed=60), False, id="a-minute-ago-is-too-old"),
        pytest.param(lease(created=30, renewed=None), True, id="just-made"),
        pytest.param(lease(renewed=None), False, id="never-renewed"),
        pytest.param(lease(patching="true"), True, id="patches"),
        pytest.param(lease(patching="false"), False, id="does-not-patch"),
        pytest.param(lease(patching="false", patching_by="ours"), False, id="the-holder-does-not-patch"),
        pytest.param(
            lease(patching="false", patching_by="ours", holder="upstream"), True, id="said-by-one-who-is-gone"
        ),
    ],
)
def test_the_updater_acts_on_a_fresh_lease_only(given: Lease, fine: bool) -> None:
    assert (read_heartbeat(given, now=NOW).problem == "") is fine


def test_since_when_patching_works_is_carried_along() -> None:
    written = {key: value for key, value in annotations(True, NOW, "ours").items() if value}
    meta = ObjectMeta(annotations=written)
    assert read_heartbeat(Lease(metadata=meta, spec=LeaseSpec(holder_identity="ours")), now=NOW).since == NOW
    assert read_heartbeat(Lease(metadata=meta, spec=LeaseSpec(holder_identity="upstream")), now=NOW).since is None
    assert annotations(False, NOW, "ours")["kubetide.io/patching-since"] is None
    assert set(annotations(None, None, "ours").values()) == {None}


@pytest.mark.parametrize(
    ("ca_days", "server_days", "staged_minutes", "expected"),
    [
        pytest.param(3000, 60, None, Rotation.KEEP, id="both-young"),
        pytest.param(3000, 29, None, Rotation.RENEW, id="server-in-its-last-third"),
        pytest.param(1200, 60, None, Rotation.STAGE, id="ca-in-its-last-third"),
        pytest.param(1200, 60, 0.5, Rotation.KEEP, id="staged-but-not-noticed-yet"),
        pytest.param(1200, 60, 1, Rotation.SWITCH, id="staged-and-noticed"),
    ],
)
def test_certificates_are_renewed_in_their_last_third(
    ca_days: int, server_days: int, staged_minutes: float | None, expected: Rotation
) -> None:
    given = Lifetimes(
        ca_expires=NOW + ca_days * DAY,
        ca_lifetime=3650 * DAY,
        server_expires=NOW + server_days * DAY,
        server_lifetime=90 * DAY,
        staged_at=None if staged_minutes is None else NOW - timedelta(minutes=staged_minutes),
    )
    assert next_rotation(given, now=NOW) is expected
