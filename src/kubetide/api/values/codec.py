"""The one place where bytes become objects and objects bytes.

msgspec decodes into narrow structs: the number of declared fields is the cost. Three special needs live here:

- long lists: a list of 100,000 items is split into raw items (cheap) and decoded in slices, so that the event loop
  turns in between;
- errors: what could not be decoded is named by what it was meant to be and the path inside it;
- Go's habit of matching object keys without regard to case, which users rely on in annotations and ConfigMaps.
"""

from functools import lru_cache
from typing import Any, TypeVar

import msgspec
import yaml

from kubetide.api.objects.meta import ApiObject
from kubetide.errors import DecodeError

T = TypeVar("T")

_ZEROS: tuple[tuple[tuple[type[msgspec.inspect.Type], ...], Any], ...] = (
    ((msgspec.inspect.StructType, msgspec.inspect.DictType), dict),
    ((msgspec.inspect.ListType, msgspec.inspect.VarTupleType), list),
    ((msgspec.inspect.StrType,), ""),
    ((msgspec.inspect.BoolType,), False),
    ((msgspec.inspect.IntType, msgspec.inspect.FloatType), 0),
)

SLICE = 500
"""Items decoded between two iterations of the event loop: below a millisecond for usage, a few for pods."""


class ShardInfo(ApiObject, frozen=True, kw_only=True, gc=False):
    """What a server that knows shards says it has filtered by."""

    selector: str = ""


class ListMeta(ApiObject, frozen=True, kw_only=True, gc=False):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None
    shard_info: ShardInfo = ShardInfo()


class RawList(ApiObject, frozen=True, kw_only=True, gc=False):
    """A list whose items are still bytes."""

    kind: str = ""
    api_version: str = ""
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


def decode(data: bytes | str, kind: type[T], *, what: str = "") -> T:
    """Decode JSON into `kind`; a DecodeError says what it was meant to be and where it is wrong."""
    try:
        decoded: T = _decode_tolerant(_decoder(kind), data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error), subject=what or getattr(kind, "__name__", str(kind))) from error
    return decoded


def decode_raw(data: bytes | str, *, what: str = "") -> Any:
    """Decode JSON into dicts, lists and scalars."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error), subject=what or "JSON") from error


def convert(raw: Any, kind: type[T], *, what: str = "") -> T:
    """Turn dicts and lists that are already decoded into `kind`."""
    try:
        return msgspec.convert(without_nulls(raw) if _may_hold_nulls(raw) else raw, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DecodeError(str(error), subject=what or getattr(kind, "__name__", str(kind))) from error


def _may_hold_nulls(raw: Any) -> bool:
    """Return whether there is anything to leave out; looking at the text is quicker than walking through the object."""
    try:
        return b"null" in msgspec.json.encode(raw)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return True


def without_nulls(raw: Any) -> Any:
    """Return `raw` without the members that are null; Kubernetes reads a null member as an absent one."""
    if isinstance(raw, dict):
        return {key: without_nulls(value) for key, value in raw.items() if value is not None}
    if isinstance(raw, list):
        return [without_nulls(value) for value in raw]
    return raw


def encode(obj: Any) -> bytes:
    """Encode structs, dicts, datetimes as JSON."""
    return msgspec.json.encode(obj)


def to_builtins(obj: Any) -> Any:
    """Turn structs into what JSON knows: dicts, lists, numbers, texts (times as RFC 3339)."""
    return msgspec.json.decode(msgspec.json.encode(obj))


def decode_folded(data: bytes | str, kind: type[T], *, what: str = "") -> T:
    """Decode like Go's encoding/json: object keys match declared names without regard to case; the last one wins."""
    raw = decode_raw(data, what=what)
    if raw is None and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        raw = {}  # Go leaves a struct as it is when it reads a null
    return convert(fold_keys(raw, kind), kind, what=what)


def fold_keys(raw: Any, kind: Any) -> Any:
    """Rename the keys of `raw` to the declared spelling of `kind`, in depth. Unknown keys stay as they are.

    A null that stands for an item of a list or a value of a map becomes the zero value of its type, as in Go: only a
    null that stands for a field says nothing.
    """
    return _fold(raw, _type_info(kind))


def _fold(raw: Any, info: msgspec.inspect.Type) -> Any:
    if raw is None:
        return raw
    if isinstance(info, msgspec.inspect.UnionType):
        for member in info.types:
            if _fits(raw, member):
                return _fold(raw, member)
        return raw
    if isinstance(info, msgspec.inspect.StructType) and isinstance(raw, dict):
        fields = {field.encode_name.lower(): field for field in info.fields}
        folded: dict[str, Any] = {}
        for key, value in raw.items():
            field = fields.get(key.lower())
            if field is None:
                folded.setdefault(key, value)
            else:
                folded[field.encode_name] = _fold(value, field.type)
        return folded
    if isinstance(info, msgspec.inspect.DictType) and isinstance(raw, dict):
        return {key: _fold_item(value, info.value_type) for key, value in raw.items()}
    if isinstance(info, msgspec.inspect.ListType | msgspec.inspect.VarTupleType) and isinstance(raw, list):
        return [_fold_item(value, info.item_type) for value in raw]
    return raw


def _fold_item(raw: Any, info: msgspec.inspect.Type) -> Any:
    return _zero(info) if raw is None else _fold(raw, info)


def _zero(info: msgspec.inspect.Type) -> Any:
    if isinstance(info, msgspec.inspect.UnionType):
        # Of what may be text or number (a quantity) the number is the readable zero.
        members = sorted(info.types, key=lambda member: not isinstance(member, msgspec.inspect.IntType))
        return None if info.includes_none else _zero(members[0])
    for kind, zero in _ZEROS:
        if isinstance(info, kind):
            return zero() if callable(zero) else zero
    return None


def _fits(raw: Any, info: msgspec.inspect.Type) -> bool:
    if isinstance(raw, dict):
        return isinstance(info, msgspec.inspect.StructType | msgspec.inspect.DictType)
    return isinstance(raw, list) and isinstance(info, msgspec.inspect.ListType | msgspec.inspect.VarTupleType)


def _decode_tolerant(decoder: msgspec.json.Decoder[Any], data: bytes | str) -> Any:
    """Decode; where a null stands in a field that has no place for one, decode again without the nulls."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(msgspec.json.decode(data)), decoder.type)


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return _cached_decoder(kind)


@lru_cache(maxsize=512)
def _cached_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@lru_cache(maxsize=512)
def _type_info(kind: Any) -> msgspec.inspect.Type:
    """Return how a type looks inside; finding out takes longer than decoding an annotation."""
    return msgspec.inspect.type_info(kind)


# YAML as people write it, with errors in one line: where the text is wrong, and what is wrong there.

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(data: bytes | str, *, what: str) -> Any:
    """Return what one YAML document holds; a DecodeError names `what`, the line and the problem."""
    try:
        return yaml.load(data, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise DecodeError(f"is not YAML: {error.problem or error.context}", subject=what, field=where) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise DecodeError(f"is not YAML: {reason}", subject=what) from error
