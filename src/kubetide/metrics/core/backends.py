"""Other servers of custom and external metrics that are asked behind this one, as a ConfigMap declares them.

    backends:
    - name: keda
      url: https://keda-operator-metrics-apiserver.keda.svc
      groups: [external.metrics.k8s.io]
      caBundle: <base64 of PEM>                # absent: the cluster's CA
      timeout: 5s

A backend that cannot be used is named by its place and leaves the others alone. What it answers is bounded, as the
answers of Prometheus are, before an autoscaler or its status has to hold it.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from kubetide.api.values.codec import parse_yaml
from kubetide.durations import parse_duration
from kubetide.errors import InvalidInput
from kubetide.metrics.core.requests import CUSTOM, EXTERNAL

MOST_BACKENDS = 20
LONGEST_TIMEOUT = timedelta(seconds=30)
MOST_VALUES = 2000
"""Values of one metric in one answer."""
MOST_LABELS, LONGEST_LABEL = 30, 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One server that is asked."""

    name: str
    url: str
    groups: tuple[str, ...]
    ca: str = ""
    timeout: timedelta = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """All of them, and what of the ConfigMap cannot be used."""

    usable: tuple[Backend, ...] = ()
    problems: tuple[str, ...] = ()


def read_backends(text: str) -> Backends:
    """Read the declaration; raises InvalidInput when it is none."""
    raw = parse_yaml(text, what="backends") or {}
    listed = raw.get("backends") or [] if isinstance(raw, dict) else None
    if not isinstance(listed, list):
        raise InvalidInput("is not a list", subject="backends")
    usable: list[Backend] = []
    problems: list[str] = []
    for number, one in enumerate(listed[:MOST_BACKENDS]):
        try:
            made = _read(one, f"backends[{number}]")
            if any(made.name == other.name for other in usable):
                raise InvalidInput(f"the name {made.name!r} is taken", subject=f"backends[{number}]", field="name")
            usable.append(made)
        except InvalidInput as error:
            problems.append(str(error))
    if len(listed) > MOST_BACKENDS:
        problems.append(f"backends: more than {MOST_BACKENDS}; the rest is left out")
    return Backends(usable=tuple(usable), problems=tuple(problems))


def _read(raw: object, place: str) -> Backend:
    if not isinstance(raw, dict):
        raise InvalidInput("is not a mapping", subject=place)
    name, url = str(raw.get("name") or ""), str(raw.get("url") or "").rstrip("/")
    if not name:
        raise InvalidInput("is missing", subject=place, field="name")
    if urlsplit(url).scheme != "https" or not urlsplit(url).hostname:
        # Our own token goes with every question.
        raise InvalidInput(f"{url!r} is no https:// address", subject=place, field="url")
    groups = tuple(str(group) for group in raw.get("groups") or (CUSTOM, EXTERNAL))
    if unknown := [group for group in groups if group not in (CUSTOM, EXTERNAL)]:
        raise InvalidInput(f"{unknown[0]!r} is neither {CUSTOM} nor {EXTERNAL}", subject=place, field="groups")
    try:
        ca = base64.b64decode(str(raw.get("caBundle") or ""), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InvalidInput("is not base64 of PEM text", subject=place, field="caBundle") from error
    timeout = parse_duration(str(raw.get("timeout") or "5s"))
    if not timedelta(0) < timeout <= LONGEST_TIMEOUT:
        limit = LONGEST_TIMEOUT.total_seconds()
        raise InvalidInput(f"must be above 0 and at most {limit:g} s", subject=place, field="timeout")
    return Backend(name=name, url=url, groups=groups, ca=ca, timeout=timeout)


def bounded_labels(labels: Any) -> dict[str, str]:
    """Return the labels of a value without its name: the first in order, those that are too long left out."""
    if not isinstance(labels, Mapping):
        return {}
    kept = [
        (key, value)
        for key, value in sorted(labels.items())
        if key != "__name__" and isinstance(value, str) and max(len(key), len(value)) <= LONGEST_LABEL
    ]
    return dict(kept[:MOST_LABELS])
