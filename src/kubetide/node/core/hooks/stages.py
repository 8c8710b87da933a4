"""The moments in the life of a pod at which hooks run, and what happens when one fails.

Hooks of a stage run in the order of registration, and what a later one sets overrules an earlier one. With the policy
`Fail` the first error ends the run and is the run's error; with `Ignore` the next hook runs and the run succeeds with
what could be set.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from kubetide.errors import InvalidInput, KubetideError
from kubetide.node.core.hooks.context import ContainerRequest, HookResponse, PodRequest


class Stage(StrEnum):
    """A moment, named after the runtime call it precedes or follows."""

    PRE_RUN_POD_SANDBOX = "PreRunPodSandbox"
    POST_STOP_POD_SANDBOX = "PostStopPodSandbox"
    PRE_REMOVE_POD_SANDBOX = "PreRemoveRunPodSandbox"
    PRE_CREATE_CONTAINER = "PreCreateContainer"
    PRE_START_CONTAINER = "PreStartContainer"
    POST_START_CONTAINER = "PostStartContainer"
    PRE_UPDATE_CONTAINER_RESOURCES = "PreUpdateContainerResources"
    POST_STOP_CONTAINER = "PostStopContainer"

    @property
    def before(self) -> bool:
        """Return whether the stage comes before the runtime's own work."""
        return self.value.startswith("Pre")

    @property
    def call(self) -> str:
        """Return the name of the runtime call."""
        return self.value.removeprefix("Pre").removeprefix("Post")


class FailurePolicy(StrEnum):
    """What an error of a hook means for the runtime's call."""

    FAIL = "Fail"
    IGNORE = "Ignore"


def failure_policy(text: str) -> FailurePolicy:
    """Return the policy that a flag names."""
    try:
        return FailurePolicy(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is neither Fail nor Ignore", field="failure-policy") from error


PodHook = Callable[[PodRequest], HookResponse]
ContainerHook = Callable[[ContainerRequest], HookResponse]
Request = TypeVar("Request", PodRequest, ContainerRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """What the hooks of a stage want, which of them failed, and whether the runtime's call must fail."""

    response: HookResponse = field(default_factory=HookResponse)
    errors: tuple[tuple[str, str], ...] = ()
    failed: bool = False

    @property
    def error(self) -> str:
        """Return the errors as one text."""
        return "; ".join(f"{name}: {message}" for name, message in self.errors)


class Hooks:
    """The hooks of all stages."""

    def __init__(
        self, *, policy: FailurePolicy = FailurePolicy.IGNORE, disabled: frozenset[Stage] = frozenset()
    ) -> None:
        self.policy = policy
        self.disabled = disabled
        self._pods: dict[Stage, dict[str, PodHook]] = {}
        self._containers: dict[Stage, dict[str, ContainerHook]] = {}

    def add_pod(self, stage: Stage, name: str, hook: PodHook) -> None:
        """Register a hook of a pod stage; a second one of the same name is a programming error."""
        _add(self._pods, stage, name, hook)

    def add_container(self, stage: Stage, name: str, hook: ContainerHook) -> None:
        """Register a hook of a container stage; a second one of the same name is a programming error."""
        _add(self._containers, stage, name, hook)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Return the stages with at least one hook, without the disabled ones, sorted by name."""
        used = {*self._pods, *self._containers} - self.disabled
        return tuple(sorted(used, key=str))

    def run_pod(self, stage: Stage, request: PodRequest) -> StageResult:
        """Run the hooks of a pod stage."""
        return self._run(self._pods.get(stage, {}) if stage not in self.disabled else {}, request)

    def run_container(self, stage: Stage, request: ContainerRequest) -> StageResult:
        """Run the hooks of a container stage."""
        return self._run(self._containers.get(stage, {}) if stage not in self.disabled else {}, request)

    def _run(self, hooks: dict[str, Callable[[Request], HookResponse]], request: Request) -> StageResult:
        response = HookResponse()
        errors: list[tuple[str, str]] = []
        for name, hook in hooks.items():
            try:
                response = hook(request).over(response)
            except Exception as error:  # noqa: BLE001 - whatever a plugin stumbles over, its policy decides
                known = isinstance(error, KubetideError)
                errors.append((name, str(error) if known else f"{type(error).__name__}: {error}"))
                if self.policy is FailurePolicy.FAIL:
                    return StageResult(response=response, errors=tuple(errors), failed=True)
        return StageResult(response=response, errors=tuple(errors))


Hook = TypeVar("Hook")


def _add(table: dict[Stage, dict[str, Hook]], stage: Stage, name: str, hook: Hook) -> None:
    hooks = table.setdefault(stage, {})
    if name in hooks:
        raise InvalidInput(f"hook {name!r} is already registered", subject=str(stage))
    hooks[name] = hook
