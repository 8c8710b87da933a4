"""A whole Kubernetes cluster in virtual time for tests, and builders of objects."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubetide.testing.builders import make_config_map as make_config_map
    from kubetide.testing.builders import make_container as make_container
    from kubetide.testing.builders import make_cron_job as make_cron_job
    from kubetide.testing.builders import make_daemon_set as make_daemon_set
    from kubetide.testing.builders import make_deployment as make_deployment
    from kubetide.testing.builders import make_hpa as make_hpa
    from kubetide.testing.builders import make_job as make_job
    from kubetide.testing.builders import make_limit_range as make_limit_range
    from kubetide.testing.builders import make_node as make_node
    from kubetide.testing.builders import make_pdb as make_pdb
    from kubetide.testing.builders import make_pod as make_pod
    from kubetide.testing.builders import make_stateful_set as make_stateful_set
    from kubetide.testing.builders import make_vpa as make_vpa
    from kubetide.testing.cluster import Cluster as Cluster
    from kubetide.testing.virtual import virtual_time as virtual_time

_BUILDERS = (
    "make_config_map",
    "make_container",
    "make_cron_job",
    "make_daemon_set",
    "make_deployment",
    "make_hpa",
    "make_job",
    "make_limit_range",
    "make_node",
    "make_pdb",
    "make_pod",
    "make_stateful_set",
    "make_vpa",
)
_HOMES = {
    "Cluster": "cluster",
    "virtual_time": "virtual",
    **dict.fromkeys(_BUILDERS, "builders"),
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
