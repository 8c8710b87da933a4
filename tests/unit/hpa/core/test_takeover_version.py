"""Taking over from another release is worth a warning."""

import pytest

from kubetide.api.values.compat import Version
from kubetide.hpa.core.takeover import version_difference


@pytest.mark.parametrize(
    ("server", "compat", "difference"),
    [
        ("v1.37.1", Version(1, 37), ""),
        ("v1.38.0", Version(1, 37), ""),
        ("v1.34.2", Version(1, 37), "the cluster runs 1.34, kubetide follows 1.37"),
        ("v1.29.0", Version(1, 33), "the cluster runs v1.29.0, kubetide follows 1.33"),
        ("", Version(1, 37), "the cluster runs an unknown version, kubetide follows 1.37"),
    ],
)
def test_a_difference_is_named(server: str, compat: Version, difference: str) -> None:
    assert version_difference(server, compat) == difference
