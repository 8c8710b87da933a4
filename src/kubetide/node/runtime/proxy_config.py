"""Which hook server gets which call: the registration files of a directory.

Servers are asked by file name, and the first one that has the stage is the only one that is called. A file that
cannot be read keeps its previous content; one that never could be read is not offered.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubetide.api.values.codec import decode_raw
from kubetide.errors import InvalidInput
from kubetide.log import get_logger
from kubetide.node.core.hooks.stages import FailurePolicy, Stage

log = get_logger("runtime-proxy")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookTarget:
    """A hook server: where it is, what its failures mean, which stages it has."""

    endpoint: str
    policy: FailurePolicy = FailurePolicy.IGNORE
    stages: frozenset[Stage] = frozenset()


def parse_target(text: bytes) -> HookTarget:
    """Return the hook server that a registration file describes; unknown stages are ignored."""
    raw: Any = decode_raw(text, what="hook registration")
    if not isinstance(raw, dict) or not isinstance(raw.get("remote-endpoint"), str):
        raise InvalidInput("a hook registration needs a remote-endpoint", field="remote-endpoint")
    known = {str(stage): stage for stage in Stage}
    names = raw.get("runtime-hooks") or []
    return HookTarget(
        endpoint=raw["remote-endpoint"],
        policy=FailurePolicy.FAIL if raw.get("failure-policy") == str(FailurePolicy.FAIL) else FailurePolicy.IGNORE,
        stages=frozenset(known[name] for name in names if name in known),
    )


@dataclass(slots=True)
class HookDirectory:
    """The registration files, read again when they change."""

    path: Path
    _loaded: dict[str, tuple[int, HookTarget | None]] = field(default_factory=dict)

    def scan(self) -> None:
        """Read files that are new or changed and forget those that are gone."""
        try:
            files = {file.name: file for file in self.path.iterdir() if file.name.endswith("json")}
        except OSError:
            files = {}
        self._loaded = {name: entry for name, entry in self._loaded.items() if name in files}
        for name, file in files.items():
            try:
                modified = file.stat().st_mtime_ns
                before = self._loaded.get(name)
                if before is not None and before[0] == modified:
                    continue
                target = before[1] if before is not None else None
                try:
                    target = parse_target(file.read_bytes())
                except InvalidInput as error:
                    log.warning("hook registration cannot be read", file=str(file), error=str(error))
                self._loaded[name] = (modified, target)
            except OSError as error:
                log.warning("hook registration cannot be read", file=str(file), error=str(error))

    def target(self, stage: Stage) -> HookTarget | None:
        """Return the server to call for a stage."""
        for _, (_, target) in sorted(self._loaded.items()):
            if target is not None and stage in target.stages:
                return target
        return None
