"""Which form of an answer an `Accept` header asks for: the object, a Table for people, or metadata only."""

from typing import Literal

Form = Literal["object", "table", "metadata"]

ACCEPTED = "only the following media types are accepted: application/json, application/yaml"


def wanted_form(accept: str) -> Form | None:
    """Return the first form in an Accept header that a server can make; None if it can make none."""
    if accept in ("", "application/json", "*/*"):
        return "object"
    for choice in accept.split(","):
        media, *parameters = [part.strip() for part in choice.split(";")]
        if media not in ("application/json", "*/*", "application/*", "application/yaml"):
            continue
        options = dict(part.split("=", 1) for part in parameters if "=" in part)
        match options.get("as"):
            case "Table":
                return "table"
            case "PartialObjectMetadata" | "PartialObjectMetadataList":
                return "metadata"
            case None:
                return "object"
    return None
