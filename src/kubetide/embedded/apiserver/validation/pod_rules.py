"""Rules of pods, wherever one is described: containers, their resources and ports, volumes, tolerations, conditions."""

from collections.abc import Iterator
from typing import Any

from kubetide.api.values.quantity import parse_quantity
from kubetide.embedded.apiserver.rest.status import (
    LABEL,
    LABEL_TEXT,
    Cause,
    Raw,
    bad_request,
    bad_value,
    name_problems,
    port_problems,
    required,
    unsupported,
)
from kubetide.errors import QuantityError


def pod_spec_problems(
    spec: Raw, path: str, *, restart: tuple[str, ...] = ("Always", "OnFailure", "Never")
) -> Iterator[Cause]:
    """Yield what is wrong with a pod spec."""
    containers = spec.get("containers") or []
    if not containers:
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            here = f"{path}.{field}[{index}]"
            name = container.get("name")
            if not name:
                yield required(f"{here}.name")
            elif len(name) > 63 or LABEL.fullmatch(name) is None:
                yield bad_value(f"{here}.name", name, LABEL_TEXT)
            elif name in seen:
                yield Cause(f"{here}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
            seen.add(name)
            if not container.get("image"):
                yield required(f"{here}.image")
            yield from _container_lists(container, here)
            yield from resource_problems(container.get("resources") or {}, f"{here}.resources")
    yield from _pod_lists(spec, path)
    policy = spec.get("restartPolicy")
    if policy not in restart:
        yield unsupported(f"{path}.restartPolicy", policy, restart)


def resource_problems(resources: Raw, path: str) -> Iterator[Cause]:
    """Yield quantities that cannot be read, negative ones, and requests above their limits."""
    parsed: dict[str, dict[str, Any]] = {"requests": {}, "limits": {}}
    for kind, amounts in parsed.items():
        for name, text in (resources.get(kind) or {}).items():
            here = f"{path}.{kind}[{name}]" if "/" in name or "." in name else f"{path}.{kind}.{name}"
            try:
                amount = parse_quantity(text)
            except QuantityError:
                raise bad_request(
                    f"quantities must match the regular expression "
                    f"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$': {path}.{kind}.{name}: {text!r}"
                ) from None
            if amount.sign < 0:
                yield bad_value(here, str(text), "must be greater than or equal to 0")
            amounts[name] = amount
    for name, asked in parsed["requests"].items():
        limit = parsed["limits"].get(name)
        if limit is not None and asked > limit:
            text = resources["requests"][name]
            yield bad_value(f"{path}.requests", str(text), f"must be less than or equal to {name} limit of {limit}")


def _container_lists(container: Raw, path: str) -> Iterator[Cause]:
    for index, port in enumerate(container.get("ports") or ()):
        number = port.get("containerPort")
        here = f"{path}.ports[{index}].containerPort"
        yield from port_problems(number, here) if number else (required(here),)
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield required(f"{path}.env[{index}].name")


def _pod_lists(spec: Raw, path: str) -> Iterator[Cause]:
    for index, volume in enumerate(spec.get("volumes") or ()):
        if not volume.get("name"):
            yield required(f"{path}.volumes[{index}].name")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        operator = toleration.get("operator") or ""
        if not toleration.get("key") and operator != "Exists":
            why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield bad_value(f"{path}.tolerations[{index}].operator", operator, why)


def pod_status_problems(status: Raw) -> Iterator[Cause]:
    """Yield what is wrong with the status of a pod."""
    for index, condition in enumerate(status.get("conditions") or ()):
        yield from name_problems(condition.get("type") or "", f"status.conditions[{index}].Type")
