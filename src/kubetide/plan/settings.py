"""Settings of the plan controller."""

from typing import Annotated, ClassVar

from kubetide.config import Doc, Settings


class PlanSettings(Settings, frozen=True, kw_only=True):
    """How WorkloadPlans are carried out; what they mean stands in the objects themselves."""

    section: ClassVar[str] = "plan"

    namespace: Annotated[
        str,
        Doc("Carry out the plans of this namespace only. Empty: all.", flag="plan-namespace"),
    ] = ""
    ignored_namespaces: Annotated[
        tuple[str, ...],
        Doc("Namespaces whose plans are not carried out.", flag="plan-ignored-namespaces"),
    ] = ()
    workers: Annotated[
        int,
        Doc("Plans that are looked at side by side.", flag="plan-workers", minimum=1),
    ] = 4
    address: Annotated[
        str,
        Doc("Where metrics and health are served.", flag="plan-address"),
    ] = ":8949"
    leader_elect: Annotated[
        bool,
        Doc("Act only while holding the lease, so that two never act at once.", flag="plan-leader-elect"),
    ] = True
    leader_elect_resource_name: Annotated[
        str,
        Doc("Name of the leader lease.", flag="plan-leader-elect-resource-name"),
    ] = "kubetide-plan"
    leader_elect_resource_namespace: Annotated[
        str,
        Doc("Namespace of the leader lease.", flag="plan-leader-elect-resource-namespace"),
    ] = "kube-system"
