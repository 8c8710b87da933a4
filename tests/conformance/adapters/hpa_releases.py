"""Which release a suite of horizontal autoscaling was recorded with: `hpa` with 1.33, `hpa-newer/…_v137` with 1.37."""

import re
from collections.abc import Mapping

from kubetide.api.objects.hpa_compat import GATES, VERSIONS, HpaCompat, hpa_compat
from kubetide.api.values.compat import parse_version

_OLDEST = "1.33"


def compat_of(key: str, gates: Mapping[str, bool] | None = None) -> HpaCompat:
    """Return the behaviour to run a case under: the release of its suite with the gates of the case."""
    found = re.search(r"_v1(\d\d)$", key)
    version = f"1.{found[1]}" if found else _OLDEST
    chosen = parse_version(version, VERSIONS)
    known = {gate.name for gate in GATES if chosen >= gate.since}
    given = {name: on for name, on in (gates or {}).items() if name in known}
    if given.get("PodLevelResources") is False and "InPlacePodLevelResourcesVerticalScaling" in known:
        given["InPlacePodLevelResourcesVerticalScaling"] = False
    return hpa_compat(version, given.items())
