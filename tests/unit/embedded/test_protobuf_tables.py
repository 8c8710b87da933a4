"""The protobuf tables and the table of JSON fields, which come from different sources, describe the same types."""

import pytest

from e2e.field_tables import wanted_kinds
from kubetide.embedded.apiserver.protobuf.tables import INLINE, Field, Message
from kubetide.embedded.apiserver.validation.fields import FREE, Many, Members, type_of
from protobuf_bodies import message_of

TYPE = {"apiVersion", "kind"}
TYPED = frozenset(["DeleteOptions"])
TEMPLATES = frozenset(["PodTemplateSpec", "JobTemplateSpec", "PersistentVolumeClaimTemplate"])


@pytest.mark.parametrize(("api_version", "kind"), wanted_kinds())
def test_every_field_of_json_has_a_number_and_no_other(api_version: str, kind: str) -> None:
    declared = type_of(api_version, kind)
    assert declared is not None
    compare(declared, message_of(api_version, kind), kind, set())


def compare(declared: Members, message: Message, where: str, seen: set[Members]) -> None:
    if declared in seen:
        return
    seen.add(declared)
    members = flat(message)
    # Which type a whole object is stands in the envelope; inside another object it is not sent.
    typed = TYPE if message.name in TYPED or ("metadata" in members and message.name not in TEMPLATES) else set()
    assert set(members) | typed == set(declared.fields), where
    for name, member in members.items():
        held, below = declared.fields[name], f"{where}.{name}"
        if isinstance(held, Many):
            assert {"[]": "list", "{}": "map"}[held.mark] == member.form, below
            held = held.each if isinstance(held.each, Members) else None
        elif held is not None:
            assert member.form == "one", below
        if held is FREE:
            assert member.kind == "Json" or (isinstance(member.kind, Message) and is_free(member.kind)), below
        elif held is not None:
            assert isinstance(member.kind, Message), below
            compare(held, member.kind, below, seen)
        else:
            assert not isinstance(member.kind, Message) or member.kind.is_choice, below


def flat(message: Message) -> dict[str, Field]:
    """Return the members as they stand in JSON."""
    found: dict[str, Field] = {}
    for member in message.fields.values():
        if member.name == INLINE:
            assert isinstance(member.kind, Message)
            found |= flat(member.kind)
        else:
            found[member.name] = member
    return found


def is_free(message: Message) -> bool:
    """Whether JSON schemas say nothing of its members: it has none, or several forms."""
    return message.is_choice or not message.fields
