"""The fields of every protobuf message that the server reads: numbers, names in JSON, and types.

`messages/` has one file per API group and version, one line per message:

    PodCondition: 1 type str?, 2 status str?, 3 lastProbeTime Time, 5 reason str, ...

`[]` is a list and `map:` a map with text keys. Go clients also send members that have no value: zero numbers and empty
texts are left out, as in their JSON, unless `?` says that zero is a value (a pointer, or a member that is always
written). The name `+` is a part whose members stand in the object itself; `|` a value that stands for the whole
message. A type is looked up in its own file, then among the core types, then in `meta.k8s.io_v1`.
"""

from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Literal

Form = Literal["one", "list", "map"]

SCALARS = frozenset(["str", "int", "bool", "bytes", "double"])
SPECIAL = frozenset(["Time", "MicroTime", "Quantity", "IntOrString", "Json"])
"""Messages that stand for one JSON value."""
INLINE, WHOLE = "+", "|"
_SHARED = ("v1", "meta.k8s.io_v1")
_PLAIN_KINDS = frozenset(["DeleteOptions"])
"""Kinds without metadata."""


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One member of a message."""

    name: str
    kind: "str | Message"
    form: Form
    keeps_zero: bool


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One message by the numbers of its fields."""

    name: str
    is_choice: bool = False
    """Whether one of its values stands for the whole message."""
    fields: dict[int, Field] = field(default_factory=dict, repr=False)

    @property
    def is_kind(self) -> bool:
        """Whether it is a whole object that a request can bring, not only a part of one."""
        return self.name in _PLAIN_KINDS or any(each.name == "metadata" for each in self.fields.values())


def find_message(api_version: str, kind: str) -> Message | None:
    """Return the message of a kind, or of a list of it. DeleteOptions and Status are the same in every version."""
    own = _messages().get(api_version.replace("/", "_"), {})
    shared = _messages()[_SHARED[-1]]
    if (found := own.get(kind) or shared.get(kind)) is not None:
        return found if found.is_kind else None
    item = own.get(kind.removesuffix("List"))
    if item is None or not item.is_kind:
        return None
    metadata, items = Field("metadata", shared["ListMeta"], "one", False), Field("items", item, "list", False)
    return Message(kind, fields={1: metadata, 2: items})


@cache
def _messages() -> dict[str, dict[str, Message]]:
    """Return all messages by file and name."""
    folder = resources.files("kubetide.embedded.apiserver.protobuf").joinpath("messages")
    lines = {
        path.name.removesuffix(".txt"): [line.partition(":") for line in path.read_text().splitlines()]
        for path in folder.iterdir()
    }
    found = {
        home: {name: Message(name, f" {WHOLE} " in members) for name, _, members in held}
        for home, held in lines.items()
    }
    for home, held in lines.items():
        reachable = {name: each for place in (*reversed(_SHARED), home) for name, each in found[place].items()}
        for name, _, members in held:
            fields = (_parse(member, reachable) for member in members.split(",") if member.strip())
            found[home][name].fields.update(fields)
    return found


def _parse(member: str, reachable: dict[str, Message]) -> tuple[int, Field]:
    number, name, kind = member.split()
    form: Form = "list" if kind.startswith("[]") else "map" if kind.startswith("map:") else "one"
    bare = kind.removeprefix("[]").removeprefix("map:").removesuffix("?")
    held = bare if bare in SCALARS or bare in SPECIAL else reachable[bare]
    return int(number), Field(name, held, form, kind.endswith("?"))
