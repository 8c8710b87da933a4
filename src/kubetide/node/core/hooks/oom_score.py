"""oom_score_adj of containers: whom the kernel OOM kills first when a node runs out of memory.

The annotation with the values by container wins over the one for the whole pod. A value that the kernel would not take
is an error, and the process keeps the one that the kubelet gave it. Sandboxes are never touched.
"""

import re
from collections.abc import Mapping

from kubetide.api.qos.qos import ANNOTATION_OOM_SCORE_ADJ, ANNOTATION_OOM_SCORE_ADJ_SPEC
from kubetide.api.values.codec import decode
from kubetide.errors import InvalidInput

LOWEST, HIGHEST = -1000, 1000
_DECIMAL = re.compile(r"[+-]?[0-9]{1,18}")


def stated_score(annotations: Mapping[str, str] | None, container: str) -> int | None:
    """Return what the annotations of a pod say about a container, None for nothing; raise InvalidInput."""
    found = annotations or {}
    by_container = found.get(ANNOTATION_OOM_SCORE_ADJ_SPEC)
    if by_container and by_container.strip() != "null":
        values = decode(by_container, dict[str, int], what=ANNOTATION_OOM_SCORE_ADJ_SPEC)
        if container in values:
            return values[container]
    text = found.get(ANNOTATION_OOM_SCORE_ADJ)
    if not text:
        return None
    if _DECIMAL.fullmatch(text) is None:
        raise InvalidInput(f"{text!r} is not an integer", subject=ANNOTATION_OOM_SCORE_ADJ)
    return int(text)


def wanted_score(annotations: Mapping[str, str] | None, container: str) -> int | None:
    """Return the oom_score_adj of a container, None to leave it alone; raise InvalidInput."""
    value = stated_score(annotations, container)
    if value is not None and not LOWEST <= value <= HIGHEST:
        raise InvalidInput(f"{value} is not in {LOWEST}..{HIGHEST}", subject=ANNOTATION_OOM_SCORE_ADJ, field=container)
    return value
