"""What the metrics server refuses, as the Status objects that Kubernetes clients read."""

from typing import Any

from kubetide.errors import KubetideError

Raw = dict[str, Any]


class Refused(KubetideError):
    """A request that is answered with a failure Status."""

    def __init__(self, code: int, reason: str, message: str, *, details: Raw | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def to_raw(self) -> Raw:
        """Return the Status."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            **({"details": self.details} if self.details else {}),
            "code": self.code,
        }


def unauthorized() -> Refused:
    """Return the answer to who shows nothing that proves who they are."""
    return Refused(401, "Unauthorized", "Unauthorized")


def forbidden(user: str, attributes: dict[str, str], path: str = "") -> Refused:
    """Return the answer to who may not do this."""
    if path:
        return Refused(403, "Forbidden", f'forbidden: User "{user}" cannot get path "{path}"')
    group, verb, resource = (attributes.get(key, "") for key in ("group", "verb", "resource"))
    what = "/".join(part for part in (resource, attributes.get("subresource", "")) if part)
    name, namespace = attributes.get("name", ""), attributes.get("namespace", "")
    where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    shown = f'{resource}.{group} "{name}"' if name else f"{resource}.{group}"
    message = f'{shown} is forbidden: User "{user}" cannot {verb} resource "{what}" in API group "{group}"{where}'
    return Refused(403, "Forbidden", message, details={"group": group, "kind": resource})


def not_found(group: str, resource: str, name: str) -> Refused:
    """Return the answer about something that is not there, or not known."""
    details = {"name": name, "group": group, "kind": resource}
    return Refused(404, "NotFound", f'{resource}.{group} "{name}" not found', details=details)


def no_such_path() -> Refused:
    """Return the answer to a path that nothing is served at."""
    return Refused(404, "NotFound", "the server could not find the requested resource")


def bad_request(message: str) -> Refused:
    """Return the answer to a question that cannot be understood."""
    return Refused(400, "BadRequest", message)


def unavailable(message: str) -> Refused:
    """Return the answer while something that is needed does not answer itself."""
    return Refused(503, "ServiceUnavailable", message)
