"""Replay: what a policy would have decided, period by period, fed with what happened.

Replay calls the pure cores of the capabilities, never their shells: what is judged here is what runs in a cluster.
`run` is the library's door to it; docs/library/replay.md has examples.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubetide.replay.core.figures import Prices as Prices
    from kubetide.replay.core.spec import PolicySpec as PolicySpec
    from kubetide.replay.core.spec import read_policy as read_policy
    from kubetide.replay.runs import Options as Options
    from kubetide.replay.runs import Outcome as Outcome
    from kubetide.replay.runs import load_policy as load_policy
    from kubetide.replay.runs import run as run
    from kubetide.replay.samples import Samples as Samples
    from kubetide.replay.samples import read_samples as read_samples
    from kubetide.replay.worst import Followed as Followed
    from kubetide.replay.worst import FollowedService as FollowedService
    from kubetide.replay.worst import follow as follow
    from kubetide.replay.worst import follow_services as follow_services

_HOMES = {
    "Followed": "kubetide.replay.worst",
    "FollowedService": "kubetide.replay.worst",
    "Options": "kubetide.replay.runs",
    "Outcome": "kubetide.replay.runs",
    "PolicySpec": "kubetide.replay.core.spec",
    "Prices": "kubetide.replay.core.figures",
    "Samples": "kubetide.replay.samples",
    "follow": "kubetide.replay.worst",
    "follow_services": "kubetide.replay.worst",
    "load_policy": "kubetide.replay.runs",
    "read_policy": "kubetide.replay.core.spec",
    "read_samples": "kubetide.replay.samples",
    "run": "kubetide.replay.runs",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
