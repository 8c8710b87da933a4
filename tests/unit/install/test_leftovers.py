"""What components made themselves goes when nobody uses it, and only then."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import LEASES, MUTATING_WEBHOOKS, SECRETS
from kubetide.install.leftovers import MADE, Installed, judge

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
GONE = Installed(workloads=frozenset(), services=frozenset())
SERVICE = {"namespace": "tide", "name": "vpa-webhook"}


def made(component: str, resource: object) -> Any:
    (found,) = (each for each in MADE if (each.component, each.resource) == (component, resource))
    return found


def lease(holder: str, age: int) -> dict[str, Any]:
    stamp = (NOW - timedelta(seconds=age)).isoformat().replace("+00:00", "Z")
    return {"spec": {"holderIdentity": holder, "renewTime": stamp, "leaseDurationSeconds": 15}}


def registered(**client: object) -> dict[str, Any]:
    return {"webhooks": [{"clientConfig": client}]}


@pytest.mark.parametrize(
    ("subject", "found", "installed", "kept"),
    [
        pytest.param(("hpa", LEASES), lease("other", 5), GONE, "other holds it", id="a-lease-that-somebody-holds"),
        pytest.param(("hpa", LEASES), lease("other", 60), GONE, "", id="a-lease-that-has-run-out"),
        pytest.param(("hpa", LEASES), lease("", 1), GONE, "", id="a-lease-that-was-given-up"),
        pytest.param(
            ("admission", MUTATING_WEBHOOKS),
            registered(service=SERVICE),
            Installed(workloads=frozenset(), services=frozenset({ObjectKey("tide", "vpa-webhook")})),
            "the Service tide/vpa-webhook is still there",
            id="a-registration-whose-service-is-there",
        ),
        pytest.param(("admission", MUTATING_WEBHOOKS), registered(service=SERVICE), GONE, "", id="without-a-service"),
        pytest.param(
            ("admission", MUTATING_WEBHOOKS),
            registered(url="https://10.0.0.1"),
            GONE,
            "it is registered by address: whether anybody answers there is not known",
            id="a-registration-by-address-is-unknown",
        ),
        pytest.param(("admission", SECRETS), {}, GONE, "", id="certificates-of-a-component-that-is-gone"),
        pytest.param(
            ("admission", SECRETS),
            {},
            Installed(workloads=frozenset({ObjectKey("tide", "kubetide-admission")}), services=frozenset()),
            "kubetide-admission is still installed",
            id="certificates-of-a-component-that-is-there",
        ),
    ],
)
def test_only_what_nobody_uses_goes(
    subject: tuple[str, object], found: dict[str, Any], installed: Installed, kept: str
) -> None:
    assert judge(made(*subject), found, namespace="tide", installed=installed, now=NOW).kept == kept


def test_objects_are_looked_for_where_they_are() -> None:
    assert made("admission", SECRETS).place("tide") == "tide"
    assert made("admission", MUTATING_WEBHOOKS).place("tide") == ""
    assert made("hpa", LEASES).place("tide") == "kube-system"
