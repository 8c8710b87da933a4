"""Paths that are not about a resource: health, version, discovery, OpenAPI."""

import msgspec

from kubetide.embedded import openapi
from kubetide.embedded.discovery import Discovery, Extra, aggregated_type
from kubetide.embedded.render import answer_raw
from kubetide.embedded.requests import Answer, Request
from kubetide.embedded.resources import Registry
from kubetide.embedded.status import Raw, method_not_allowed, no_such_path

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
_HEALTH = ("healthz", "livez", "readyz")
_SWAGGER = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


class NonResource:
    """Answers everything above the resources."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._discovery = Discovery(registry)
        self._documents: dict[tuple[str, str, int], bytes] = {}

    def answer(self, request: Request, extra: Extra) -> Answer:
        """Return the document that a path names."""
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed("", request.path, request.method.lower())
        parts = [part for part in request.path.split("/") if part]
        match parts:
            case []:
                return answer_raw({"paths": ["/api", "/apis", "/healthz", "/openapi/v2", "/openapi/v3", "/version"]})
            case [name, *_] if name in _HEALTH:
                return Answer(200, b"ok", "text/plain; charset=utf-8")
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
                found = answer_raw(self._discovery.answer(request, parts, extra))
                return Answer(
                    found.status, found.body, aggregated_type(request) if len(parts) == 1 else found.content_type
                )
        raise no_such_path()

    def _versions(self) -> list[tuple[str, str]]:
        named = [(group, version) for group, versions in self._registry.groups().items() for version in versions]
        return [("", "v1"), *named]

    def _document(self, group: str, version: str) -> Answer:
        key = (group, version, self._registry.generation)
        if key not in self._documents:
            self._documents = {k: v for k, v in self._documents.items() if k[2] == self._registry.generation}
            self._documents[key] = msgspec.json.encode(openapi.document(self._registry, group, version))
        return Answer(200, self._documents[key])
