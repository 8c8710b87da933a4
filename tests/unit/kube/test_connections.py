"""Connections that are looked after when nothing has come for a while."""

import asyncio
from typing import Any, cast

from kubetide.kube.connections import _Connection


class Closed(asyncio.Transport):
    """A connection over TLS that was closed twice: asyncio has let go of what knows its buffer."""

    def is_closing(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        raise AttributeError("'NoneType' object has no attribute '_get_write_buffer_size'")


class Looked:
    """What the look at a connection needs of it."""

    transport = Closed()
    _unsent = 0


def test_a_connection_that_was_closed_meanwhile_takes_no_answer() -> None:
    assert _Connection._is_taking_its_answer(cast("Any", Looked())) is False
