"""Pseudonyms for names: one name is one pseudonym under one key, and none can be turned back without the key.

Names of namespaces, workloads, pods, containers, nodes, metrics, labels and their values become `x-` and 12 hexadecimal
digits of a keyed hash (BLAKE2b). The key is made for one recording and thrown away, unless the
user gives one to make recordings comparable. Numbers, kinds, times and the words of Kubernetes itself stay.
"""

import hashlib
from typing import Any

_NAMES = frozenset({"name", "namespace", "uid", "containerName", "nodeName", "generateName"})
_MAPS = frozenset({"labels", "matchLabels", "annotations"})
_OWN = ("kubetide.io/",)
_TEXTS = frozenset({"message"})
_EVERY = "*"
"""Of a VPA's container policies: no name of anybody's."""
_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


class Pseudonyms:
    """Replaces names under one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key[:64]
        self._known: dict[str, str] = {}

    def name(self, text: str) -> str:
        """Return the pseudonym of a name; nothing stays nothing, and every container stays every container."""
        if text in ("", _EVERY):
            return text
        found = self._known.get(text)
        if found is None:
            digest = hashlib.blake2b(text.encode(), key=self._key, digest_size=6).hexdigest()
            found = self._known[text] = f"x-{digest}"
        return found

    def object(self, raw: Any, field: str = "", parent: str = "") -> Any:
        """Return a sanitised object with all its names replaced."""
        if isinstance(raw, dict):
            if field in _MAPS:
                return {self._label(key): self._value(key, value) for key, value in raw.items()}
            return {key: self.object(value, key, field) for key, value in raw.items() if key not in _TEXTS}
        if isinstance(raw, list):
            if field == "values" and parent == "matchExpressions":
                return [self.name(str(each)) for each in raw]
            return [self.object(each, field, field) for each in raw]
        if isinstance(raw, str):
            if field == "key" and parent == "matchExpressions":
                return self._label(raw)
            # The name of a resource metric says what it is, not whose.
            if field in _NAMES and not (parent in ("resource", "containerResource") and raw in _RESOURCES):
                return self.name(raw)
            if field == "container" and parent in ("containerResource",):
                return self.name(raw)
        return raw

    def _label(self, key: str) -> str:
        return key if key.startswith(_OWN) else self.name(key)

    def _value(self, key: str, value: Any) -> Any:
        return value if key.startswith(_OWN) else self.name(str(value))
