"""Paths that are not about a resource: health, version, discovery, OpenAPI."""

from collections.abc import Callable

import msgspec

from kubetide.embedded.apiserver import openapi
from kubetide.embedded.apiserver.discovery import Discovery, Extra, aggregated_type
from kubetide.embedded.apiserver.resources import Registry
from kubetide.embedded.apiserver.rest.render import answer_raw
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.rest.status import Raw, method_not_allowed, no_such_path
from kubetide.embedded.apiserver.storage.objects import ObjectStore

VERSION: Raw = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0+kubetide",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "cpython",
    "platform": "python",
}
_MOST_DISCOVERED = 256
"""Discovery documents kept, by path and Accept header: clients may send any."""
_HEALTH = ("healthz", "livez", "readyz")
_SWAGGER = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""Also for who asks by the older name with an `@`, which is no media type and which strict clients refuse."""


class NonResource:
    """Answers everything above the resources."""

    def __init__(self, registry: Registry, store: ObjectStore, metrics: Callable[[], str]) -> None:
        self._metrics = metrics
        self._registry = registry
        self._store = store
        self._discovery = Discovery(registry)
        self._documents: dict[tuple[str, str, int], bytes] = {}
        self._served: tuple[int, Extra] | None = None
        self._discovered: dict[tuple[str, str], Answer] = {}

    def answer(self, request: Request, extra: Extra) -> Answer:
        """Return the document that a path names."""
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed("", request.path, request.method.lower())
        parts = [part for part in request.path.split("/") if part]
        match parts:
            case []:
                return answer_raw({"paths": ["/api", "/apis", "/healthz", "/openapi/v2", "/openapi/v3", "/version"]})
            case ["readyz", *_] if self._store.trouble:
                text = f"not ready: changes cannot be made durable: {self._store.trouble}\n"
                return Answer(500, text.encode(), "text/plain; charset=utf-8")
            case [name, *_] if name in _HEALTH:
                return Answer(200, b"ok", "text/plain; charset=utf-8")
            case ["metrics"]:
                return Answer(200, self._metrics().encode(), "text/plain; version=0.0.4; charset=utf-8")
            case ["version"]:
                return answer_raw(VERSION)
            case ["openapi", "v2"]:
                if "protobuf" in request.accept:
                    return Answer(200, openapi.swagger_protobuf(), _SWAGGER)
                return answer_raw(openapi.swagger())
            case ["openapi", "v3"]:
                return answer_raw(openapi.root(self._versions(), self._registry.generation))
            case ["openapi", "v3", "api", version]:
                return self._document("", version)
            case ["openapi", "v3", "apis", group, version]:
                return self._document(group, version)
            case ["api" | "apis", *_]:
                return self._discovery_answer(request, parts, extra)
        raise no_such_path()

    def _discovery_answer(self, request: Request, parts: list[str], extra: Extra) -> Answer:
        """Return a discovery document, made once while the server serves the same."""
        served = (self._registry.generation, extra)
        if self._served != served:
            self._served, self._discovered = served, {}
        asked = (request.path, request.accept)
        found = self._discovered.get(asked)
        if found is None:
            made = answer_raw(self._discovery.answer(request, parts, extra))
            found = Answer(made.status, made.body, aggregated_type(request) if len(parts) == 1 else made.content_type)
            if len(self._discovered) < _MOST_DISCOVERED:
                self._discovered[asked] = found
        return found

    def _versions(self) -> list[tuple[str, str]]:
        named = [(group, version) for group, versions in self._registry.groups().items() for version in versions]
        return [("", "v1"), *named]

    def _document(self, group: str, version: str) -> Answer:
        key = (group, version, self._registry.generation)
        if key not in self._documents:
            self._documents = {k: v for k, v in self._documents.items() if k[2] == self._registry.generation}
            self._documents[key] = msgspec.json.encode(openapi.document(self._registry, group, version))
        return Answer(200, self._documents[key])
