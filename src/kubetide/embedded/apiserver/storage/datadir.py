"""The data directory of `kubetide up`: who may read it, and where its secrets lie.

Whoever reads the administrator's token or the CA's key is the administrator. So nobody but the owner may look into
the directory or any file in it, also if it was made with wider permissions once; and keys lie in files of their own
(`keys/`), apart from the objects, so that a copy of the objects gives nobody access.
"""

import os
import stat
import tempfile
from pathlib import Path

from kubetide.errors import InvalidInput

_FILES = ("lock", "objects.db", "objects.db-wal", "objects.db-shm", "kubetide.kubeconfig")
_KEYS = "keys"


def make_private(directory: Path) -> None:
    """Make a directory that only its owner can enter, or tighten one that is there, with the files in it."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if directory.stat().st_mode & stat.S_ISVTX:
            raise InvalidInput("is shared by several users: give a directory of its own", subject=str(directory))
        directory.chmod(0o700)
        kept = [directory / name for name in _FILES]
        if (directory / _KEYS).is_dir():
            (directory / _KEYS).chmod(0o700)
            kept += (directory / _KEYS).iterdir()
        for path in kept:
            if path.is_file() and not path.is_symlink():
                path.chmod(0o600)
    except OSError as error:
        raise InvalidInput(f"cannot be made private: {error.strerror}", subject=str(directory)) from error


def touch_private(path: Path) -> None:
    """Make a file that only its owner can read, unless it is there."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror}", subject=str(path)) from error


def read_keys(directory: Path, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the secrets of a data directory, or None if they are not all there."""
    try:
        return tuple((directory / _KEYS / name).read_text() for name in names)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot be read: {error}", subject=str(directory / _KEYS)) from error


def write_keys(directory: Path, secrets: dict[str, str]) -> None:
    """Keep the secrets of a data directory, each in a file of its own."""
    folder = directory / _KEYS
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot be made: {error.strerror}", subject=str(folder)) from error
    for name, text in secrets.items():
        write_private(folder / name, text)
