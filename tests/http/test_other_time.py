"""`kubetide run` beside a server that lives in another time."""

from datetime import datetime, timedelta

import pytest

from kubetide.cli.run import refuse_other_time
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust


class Ahead(SystemClock):
    """A clock that is ahead of the machine's."""

    def __init__(self, by: timedelta) -> None:
        super().__init__()
        self._by = by

    def now(self) -> datetime:
        return super().now() + self._by


@pytest.mark.parametrize(
    ("by", "refused"),
    [
        pytest.param(timedelta(0), False, id="the-same-time"),
        pytest.param(timedelta(seconds=10), False, id="a-little-ahead"),
        pytest.param(timedelta(hours=2), True, id="far-ahead"),
        pytest.param(timedelta(hours=-2), True, id="far-behind"),
    ],
)
async def test_a_server_in_another_time_is_refused_with_the_remedy(by: timedelta, refused: bool) -> None:
    async with serve(ApiServer(clock=Ahead(by)), anonymous=True) as serving:
        access = Access(server=serving.url, trust=ServerTrust(), credentials=Static())
        client = Client(HttpTransport(access), clock=SystemClock())
        try:
            if refused:
                with pytest.raises(KubetideError, match=r"clock is 7\d\d\d s away .*; fix: .*up --sim .*--with"):
                    await refuse_other_time(client, SystemClock())
            else:
                await refuse_other_time(client, SystemClock())
        finally:
            await client.close()


async def test_a_server_that_is_away_is_no_reason_not_to_start() -> None:
    access = Access(server="http://127.0.0.1:1", trust=ServerTrust(), credentials=Static())
    client = Client(HttpTransport(access), clock=SystemClock())
    try:
        await refuse_other_time(client, SystemClock())
    finally:
        await client.close()
