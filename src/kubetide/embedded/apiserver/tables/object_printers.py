"""Columns of everything that is not a workload: autoscalers, budgets, services, events and the rest."""

from datetime import datetime
from typing import Any

from kubetide.embedded.apiserver.rest.status import Raw, qualified
from kubetide.embedded.apiserver.tables.printers import (
    AGE,
    NAME,
    Cell,
    Cells,
    Column,
    age,
    name_of,
    part_of,
    register,
    since,
    text_columns,
)


def _or(value: Any, other: str) -> str:
    return other if value in (None, "") else str(value)


# -- autoscalers


def _hpa(obj: Raw, now: datetime | None) -> list[Cell]:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    target = part_of(spec, "scaleTargetRef")
    return [
        name_of(obj),
        f"{target.get('kind')}/{target.get('name')}",
        hpa_targets(spec.get("metrics") or [], status.get("currentMetrics") or []),
        _or(spec.get("minReplicas"), "<unset>"),
        int(spec.get("maxReplicas") or 0),
        int(status.get("currentReplicas") or 0),
        age(obj, now),
    ]


def hpa_targets(specs: list[Raw], statuses: list[Raw]) -> str:
    """Return what is measured and what is wanted, for up to two metrics."""
    if not specs:
        return "<none>"
    shown = [_hpa_metric(spec, statuses[i] if i < len(statuses) else {}) for i, spec in enumerate(specs[:2])]
    more = f" + {len(specs) - 2} more..." if len(specs) > 2 else ""
    return ", ".join(shown) + more


def _hpa_metric(spec: Raw, status: Raw) -> str:
    kind = str(spec.get("type") or "")
    field = kind[:1].lower() + kind[1:]
    source, current = part_of(spec, field), part_of(part_of(status, field), "current")
    target = part_of(source, "target")
    named = f"{source.get('name')}: " if kind in ("Resource", "ContainerResource") else ""
    if target.get("averageUtilization") is not None:
        measured = current.get("averageUtilization")
        return f"{named}{'<unknown>' if measured is None else f'{measured}%'}/{target['averageUtilization']}%"
    if target.get("averageValue") is not None and kind != "Object":
        suffix = " (avg)" if kind == "External" else ""
        return f"{named}{_or(current.get('averageValue'), '<unknown>')}/{target['averageValue']}{suffix}"
    if target.get("averageValue") is not None:
        return f"{named}{_or(current.get('averageValue'), '<unknown>')}/{target['averageValue']} (avg)"
    return f"{named}{_or(current.get('value'), '<unknown>')}/{target.get('value')}"


def _pdb(obj: Raw, now: datetime | None) -> list[Cell]:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    return [
        name_of(obj),
        _or(spec.get("minAvailable"), "N/A"),
        _or(spec.get("maxUnavailable"), "N/A"),
        int(status.get("disruptionsAllowed") or 0),
        age(obj, now),
    ]


# -- core


def _namespace(obj: Raw, now: datetime | None) -> list[Cell]:
    return [name_of(obj), _or(part_of(obj, "status").get("phase"), "Active"), age(obj, now)]


def _service(obj: Raw, now: datetime | None) -> list[Cell]:
    spec = part_of(obj, "spec")
    ports = ",".join(_port(port) for port in spec.get("ports") or ())
    external = spec.get("externalName") or ",".join(spec.get("externalIPs") or ())
    selector = ",".join(f"{key}={value}" for key, value in sorted(part_of(spec, "selector").items()))
    return [
        name_of(obj),
        _or(spec.get("type"), "ClusterIP"),
        _or(spec.get("clusterIP"), "<none>"),
        external or "<none>",
        ports or "<none>",
        age(obj, now),
        selector or "<none>",
    ]


def _port(port: Raw) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"


def _endpoints(obj: Raw, now: datetime | None) -> list[Cell]:
    found = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in obj.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or [{}]
    ]
    shown = ",".join(found[:3]) + (f" + {len(found) - 3} more..." if len(found) > 3 else "")
    return [name_of(obj), shown or "<none>", age(obj, now)]


def _config_map(obj: Raw, now: datetime | None) -> list[Cell]:
    return [name_of(obj), len(part_of(obj, "data")) + len(part_of(obj, "binaryData")), age(obj, now)]


def _secret(obj: Raw, now: datetime | None) -> list[Cell]:
    return [name_of(obj), _or(obj.get("type"), "Opaque"), len(part_of(obj, "data")), age(obj, now)]


def _service_account(obj: Raw, now: datetime | None) -> list[Cell]:
    return [name_of(obj), len(obj.get("secrets") or ()), age(obj, now)]


def _event(obj: Raw, now: datetime | None) -> list[Cell]:
    involved = part_of(obj, "involvedObject")
    source = part_of(obj, "source")
    last = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"].get("creationTimestamp")
    first = obj.get("firstTimestamp") or last
    return [
        since(last, now),
        str(obj.get("type") or ""),
        str(obj.get("reason") or ""),
        f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}",
        _or(involved.get("fieldPath"), ""),
        str(source.get("component") or obj.get("reportingComponent") or ""),
        str(obj.get("message") or "").strip(),
        since(first, now),
        int(obj.get("count") or 1),
        name_of(obj),
    ]


def _claim(obj: Raw, now: datetime | None) -> list[Cell]:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    capacity = part_of(status, "capacity").get("storage", "")
    modes = ",".join(spec.get("accessModes") or ())
    phase = str(status.get("phase") or "Pending")
    return [
        name_of(obj),
        phase,
        str(spec.get("volumeName") or ""),
        str(capacity),
        modes,
        str(spec.get("storageClassName") or ""),
        age(obj, now),
    ]


def _lease(obj: Raw, now: datetime | None) -> list[Cell]:
    return [name_of(obj), str(part_of(obj, "spec").get("holderIdentity") or ""), age(obj, now)]


# -- machinery


def _crd(obj: Raw, now: datetime | None) -> list[Cell]:
    return [name_of(obj), str(obj["metadata"].get("creationTimestamp") or "")]


def _binding(obj: Raw, now: datetime | None) -> list[Cell]:
    role = part_of(obj, "roleRef")
    users = [str(s.get("name")) for s in obj.get("subjects") or () if s.get("kind") == "User"]
    groups = [str(s.get("name")) for s in obj.get("subjects") or () if s.get("kind") == "Group"]
    accounts = [
        f"{s.get('namespace')}/{s.get('name')}" for s in obj.get("subjects") or () if s.get("kind") == "ServiceAccount"
    ]
    return [
        name_of(obj),
        f"{role.get('kind')}/{role.get('name')}",
        age(obj, now),
        ", ".join(users),
        ", ".join(groups),
        ", ".join(accounts),
    ]


def _webhooks(obj: Raw, now: datetime | None) -> list[Cell]:
    return [name_of(obj), len(obj.get("webhooks") or ()), age(obj, now)]


def _api_service(obj: Raw, now: datetime | None) -> list[Cell]:
    service = part_of(part_of(obj, "spec"), "service")
    conditions = {c.get("type"): c for c in part_of(obj, "status").get("conditions") or ()}
    available = str(part_of(conditions, "Available").get("status") or ("Unknown" if service else "True"))
    where = f"{service.get('namespace')}/{service.get('name')}" if service else "Local"
    return [name_of(obj), where, available, age(obj, now)]


def _priority_class(obj: Raw, now: datetime | None) -> list[Cell]:
    return [name_of(obj), int(obj.get("value") or 0), bool(obj.get("globalDefault")), age(obj, now)]


def _revision(obj: Raw, now: datetime | None) -> list[Cell]:
    owner = next((o for o in obj["metadata"].get("ownerReferences") or () if o.get("controller")), None)
    controller = "<none>"
    if owner is not None:
        group = str(owner.get("apiVersion")).rpartition("/")[0]
        controller = f"{qualified(group, str(owner.get('kind')).lower())}/{owner.get('name')}"
    return [name_of(obj), controller, int(obj.get("revision") or 0), age(obj, now)]


def _created(obj: Raw, now: datetime | None) -> list[Cell]:
    return [name_of(obj), str(obj["metadata"].get("creationTimestamp") or "")]


_EVENT_COLUMNS = (
    Column("Last Seen"),
    Column("Type"),
    Column("Reason"),
    Column("Object"),
    Column("Subobject", priority=1),
    Column("Source", priority=1),
    Column("Message"),
    Column("First Seen", priority=1),
    Column("Count", priority=1),
    Column("Name", priority=1),
)
_RBAC = "rbac.authorization.k8s.io"
_HOOKS = "admissionregistration.k8s.io"
_TABLE: tuple[tuple[str, str, tuple[Column, ...], Cells], ...] = (
    (
        "autoscaling",
        "horizontalpodautoscalers",
        text_columns("Reference", "Targets", "MinPods", "MaxPods", "Replicas"),
        _hpa,
    ),
    (
        "policy",
        "poddisruptionbudgets",
        text_columns("Min Available", "Max Unavailable", "Allowed Disruptions"),
        _pdb,
    ),
    ("", "namespaces", text_columns("Status"), _namespace),
    ("", "services", text_columns("Type", "Cluster-IP", "External-IP", "Port(s)", wide=("Selector",)), _service),
    ("", "endpoints", text_columns("Endpoints"), _endpoints),
    ("", "configmaps", text_columns("Data"), _config_map),
    ("", "secrets", text_columns("Type", "Data"), _secret),
    ("", "serviceaccounts", text_columns("Secrets"), _service_account),
    ("", "events", _EVENT_COLUMNS, _event),
    (
        "",
        "persistentvolumeclaims",
        text_columns("Status", "Volume", "Capacity", "Access Modes", "StorageClass"),
        _claim,
    ),
    ("coordination.k8s.io", "leases", text_columns("Holder"), _lease),
    ("apiextensions.k8s.io", "customresourcedefinitions", (NAME, Column("Created At")), _crd),
    (_RBAC, "roles", (NAME, Column("Created At")), _created),
    (_RBAC, "clusterroles", (NAME, Column("Created At")), _created),
    (_RBAC, "rolebindings", text_columns("Role", wide=("Users", "Groups", "ServiceAccounts")), _binding),
    (_RBAC, "clusterrolebindings", text_columns("Role", wide=("Users", "Groups", "ServiceAccounts")), _binding),
    (_HOOKS, "mutatingwebhookconfigurations", text_columns("Webhooks"), _webhooks),
    (_HOOKS, "validatingwebhookconfigurations", text_columns("Webhooks"), _webhooks),
    ("apiregistration.k8s.io", "apiservices", text_columns("Service", "Available"), _api_service),
    ("scheduling.k8s.io", "priorityclasses", text_columns("Value", "Global-Default"), _priority_class),
    ("apps", "controllerrevisions", (NAME, Column("Controller"), Column("Revision"), AGE), _revision),
)


def register_all() -> None:
    """Register the printers of this module."""
    for group, plural, columns, cells in _TABLE:
        register(group, plural, columns, cells)
