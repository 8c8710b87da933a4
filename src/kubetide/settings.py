"""All settings, section by section: what `kubetide run` understands and what the reference page shows."""

from typing import Annotated, ClassVar

from kubetide.config import Doc, Settings
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.settings import KubeSettings
from kubetide.node.settings import NodeSettings
from kubetide.slo.settings import SloSettings
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.settings import RecommenderSettings
from kubetide.vpa.updater.settings import UpdaterSettings


class ProcessSettings(Settings, frozen=True, kw_only=True):
    """The process around the components."""

    section: ClassVar[str] = "process"

    listen: Annotated[
        str,
        Doc(
            "Where metrics, health and explain are served, such as :8080 or 127.0.0.1:9000. "
            "Empty: the address of the component, or of the first one named when several share the process."
        ),
    ] = ""
    explain_token: Annotated[
        str, Doc("A bearer token that opens /explain to others than loopback. Empty: loopback only.")
    ] = ""
    config: Annotated[str, Doc("A YAML file with settings, one section per component.")] = ""


COMPONENTS: dict[str, type[Settings]] = {
    "hpa": HpaSettings,
    "recommender": RecommenderSettings,
    "updater": UpdaterSettings,
    "admission": AdmissionSettings,
    "slo": SloSettings,
}
"""What `kubetide run` can run."""

SECTIONS: dict[str, type[Settings]] = {
    "process": ProcessSettings,
    "kube": KubeSettings,
    **COMPONENTS,
    "node": NodeSettings,
}
"""Every group of settings, in the order of the reference page."""
