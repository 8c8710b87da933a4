"""Settings of the policy controller."""

from datetime import timedelta
from typing import Annotated, ClassVar

from kubetide.api.values.selectors import parse_selector
from kubetide.config import Doc, Settings
from kubetide.errors import InvalidInput, SettingsError
from kubetide.vpa.policies.core.plan import DISABLED, Rules, parse_mode


class PolicySettings(Settings, frozen=True, kw_only=True):
    section: ClassVar[str] = "policy"

    namespace_selector: Annotated[
        str,
        Doc(
            "Namespaces whose workloads get a VPA, as a label selector; beside those with the label kubetide.io/vpa, "
            "which wins. Empty: only those with the label.",
            flag="policy-namespace-selector",
        ),
    ] = ""
    update_mode: Annotated[
        str,
        Doc("Update mode of VPAs in namespaces that are chosen by the selector.", flag="policy-update-mode"),
    ] = "Off"
    ignored_namespaces: Annotated[
        tuple[str, ...],
        Doc("Namespaces that get no VPAs, whatever their labels.", flag="policy-ignored-namespaces"),
    ] = ()
    kinds: Annotated[
        tuple[str, ...],
        Doc("Kinds of workloads that get a VPA.", flag="policy-kinds"),
    ] = ("Deployment", "StatefulSet", "DaemonSet", "CronJob")
    removal_delay: Annotated[
        timedelta,
        Doc(
            "How long a VPA stays whose workload is gone, or whose namespace is no longer chosen: what was learned "
            "about a workload goes with its VPA. With the label kubetide.io/vpa=disabled it goes at once.",
            flag="policy-removal-delay",
        ),
    ] = timedelta(minutes=10)
    address: Annotated[str, Doc("Where metrics and health are served.", flag="policy-address")] = ":8947"
    leader_elect: Annotated[
        bool, Doc("Act only while holding the lease, so that two never act at once.", flag="policy-leader-elect")
    ] = True
    leader_elect_resource_name: Annotated[
        str, Doc("Name of the leader lease.", flag="policy-leader-elect-resource-name")
    ] = "kubetide-policy"
    leader_elect_resource_namespace: Annotated[
        str, Doc("Namespace of the leader lease.", flag="policy-leader-elect-resource-namespace")
    ] = "kube-system"

    def rules(self) -> Rules:
        """Return what the settings mean; raises for what cannot be meant."""
        mode = parse_mode(self.update_mode)
        if mode is None or mode == DISABLED:
            raise SettingsError(f"{self.update_mode!r} is no update mode of a VPA", field="policy-update-mode")
        try:
            selector = parse_selector(self.namespace_selector) if self.namespace_selector else None
        except InvalidInput as error:
            raise SettingsError(str(error), field="policy-namespace-selector") from error
        return Rules(selector=selector, mode=mode, ignored=frozenset(self.ignored_namespaces))
