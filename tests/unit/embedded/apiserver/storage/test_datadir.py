"""The data directory: only its owner can read it, and its keys lie apart from the objects."""

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.identity import Identity, make_identity
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.datadir import write_private
from kubetide.embedded.apiserver.storage.journal import Journal
from kubetide.errors import InvalidInput

NOW = SystemClock().now()
SECRETS = {"ca.crt", "ca.key", "admin.token", "token.key"}


@pytest.fixture(autouse=True)
def _generous_umask() -> Iterator[None]:
    """The permissions must not depend on the umask of whoever starts the server."""
    before = os.umask(0o002)
    yield
    os.umask(before)


def use(data: Path) -> Identity:
    """Start on a data directory as `kubetide up` does, write something, and check the permissions while it runs."""

    async def main() -> Identity:
        journal = Journal(data)
        identity = make_identity(journal, now=NOW)
        ApiServer(clock=SystemClock(), seed=None, store=journal.load())
        journal.start()
        assert not readable_by_others(data)
        await journal.close()
        return identity

    return asyncio.run(main())


def readable_by_others(data: Path) -> list[Path]:
    return [path for path in (data, *data.rglob("*")) if path.stat().st_mode & 0o077]


def in_database(data: Path, secret: str) -> bool:
    return any(secret.encode() in path.read_bytes() for path in data.glob("objects.db*"))


def test_nobody_else_can_read_a_new_directory(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    identity = use(data)
    assert not readable_by_others(data)
    assert {path.name for path in (data / "keys").iterdir()} == SECRETS
    assert not in_database(data, identity.token)
    assert use(data) == identity


def test_an_existing_directory_is_tightened_and_its_keys_are_moved_out_of_the_database(tmp_path: Path) -> None:
    identity = make_identity(None, now=NOW)
    old = sqlite3.connect(tmp_path / "objects.db")
    old.execute("PRAGMA journal_mode=WAL")
    old.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
    facts = {
        "ca.crt": identity.ca.certificate,
        "ca.key": identity.ca.key,
        "token": identity.token,
        "token.key": identity.token_key.hex(),
        "reserved": "70",
    }
    old.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
    old.commit()
    old.close()
    (tmp_path / "kubetide.kubeconfig").write_text("token: x")
    tmp_path.chmod(0o755)
    assert in_database(tmp_path, identity.token)
    assert use(tmp_path) == identity
    assert not readable_by_others(tmp_path)
    for secret in (identity.token, identity.token_key.hex(), identity.ca.key[200:240]):
        assert not in_database(tmp_path, secret)
    assert use(tmp_path) == identity


def test_a_directory_that_users_share_is_not_taken_over(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(InvalidInput, match="is shared by several users"):
        Journal(tmp_path)
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777
    tmp_path.chmod(0o700)


def test_a_link_in_the_directory_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    outside.chmod(0o644)
    data = tmp_path / "data"
    data.mkdir()
    (data / "kubetide.kubeconfig").symlink_to(outside)
    asyncio.run(Journal(data).close())
    assert outside.stat().st_mode & 0o777 == 0o644


def test_a_key_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    use(tmp_path)
    (tmp_path / "keys" / "token.key").write_text("not hex")
    journal = Journal(tmp_path)
    with pytest.raises(InvalidInput, match=r"token\.key is not a key"):
        make_identity(journal, now=NOW)
    asyncio.run(journal.close())


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(InvalidInput, match="taken: cannot be written"):
        write_private(tmp_path / "taken", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
