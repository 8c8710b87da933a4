"""The roots of the exception tree. Every error that kubetide raises on purpose descends from here.

    KubetideError
    ├── InvalidInput            something a user wrote cannot be used: names the object and the field
    │   ├── QuantityError       api.quantity
    │   ├── SelectorError       api.selectors
    │   ├── PatchError          api.patch
    │   │   └── PatchTooLarge   its result, or the work it takes, is beyond what is applied
    │   ├── DecodeError         api.codec: bytes that are not the object they should be
    │   └── SettingsError       config
    ├── TerminalError           trying again cannot help; a reconcile loop drops the key until it changes
    ├── Unavailable             a collaborator did not answer; trying again later may help
    └── ApiError                kube.errors: what an API server refused, by reason (NotFound, Conflict, Gone…)

An error chains its cause and names the object it is about. In a reconcile loop any error means backoff,
`TerminalError` means stop.
"""


class KubetideError(Exception):
    """Root of all errors that kubetide raises on purpose."""


class InvalidInput(KubetideError):
    """Something a user wrote cannot be used. `field` is the path inside `subject`, where both are known."""

    def __init__(self, message: str, *, subject: str = "", field: str = "") -> None:
        where = " ".join(part for part in (subject, field) if part)
        super().__init__(f"{where}: {message}" if where else message)
        self.subject = subject
        self.field = field
        self.message = message


class QuantityError(InvalidInput):
    """A text is not a Kubernetes quantity."""


class SelectorError(InvalidInput):
    """A label or field selector cannot be parsed or is not valid."""


class PatchError(InvalidInput):
    """A patch cannot be applied to the object."""


class PatchTooLarge(PatchError):
    """Applying a patch would take more work or memory than any sensible patch does."""


class DecodeError(InvalidInput):
    """Bytes are not JSON, or not the object they should be."""


class SettingsError(InvalidInput):
    """A setting has a value that cannot be used."""


class TerminalError(KubetideError):
    """Trying again cannot help until something changes."""


class Unavailable(KubetideError):
    """A collaborator did not answer; trying again later may help."""
