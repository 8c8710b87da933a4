"""Signatures of AWS, against the examples that AWS publishes, and as a server gets them."""

from datetime import UTC, datetime

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kubetide.cli.offline.usage_sources import sources_of
from kubetide.clock import SystemClock
from kubetide.recommend.core.sigv4 import AwsCredentials, signed_headers

NOW = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    ("method", "url", "service", "headers", "signature"),
    [
        pytest.param(
            "GET",
            "https://example.amazonaws.com/",
            "service",
            {},
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            id="get-vanilla",
        ),
        pytest.param(
            "POST",
            "https://example.amazonaws.com/",
            "service",
            {},
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            id="post-vanilla",
        ),
        pytest.param(
            "GET",
            "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08",
            "iam",
            {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
            "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
            id="list-users",
        ),
    ],
)
def test_signatures_are_those_that_aws_publishes(
    method: str, url: str, service: str, headers: dict[str, str], signature: str
) -> None:
    who = AwsCredentials(access_key="AKIDEXAMPLE", secret_key=SECRET, region="us-east-1", service=service)
    found = signed_headers(who, method, url, b"", headers, now=NOW)
    assert found["X-Amz-Date"] == "20150830T123600Z"
    assert found["Authorization"].startswith(
        f"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/{service}/aws4_request, SignedHeaders="
    )
    assert found["Authorization"].endswith(f"Signature={signature}")


def test_a_session_token_is_sent_and_signed_and_secrets_are_not_shown() -> None:
    who = AwsCredentials(access_key="A", secret_key=SECRET, session_token="temporary", region="eu-west-1")
    found = signed_headers(who, "POST", "https://aps.example/api/v1/query", b"query=up", {}, now=NOW)
    assert found["X-Amz-Security-Token"] == "temporary"
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token," in found["Authorization"]
    assert SECRET not in repr(who)
    assert "temporary" not in repr(who)


async def test_a_server_gets_requests_that_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[bool] = []

    async def answer(request: web.Request) -> web.Response:
        """Sign again what arrived, and compare."""
        at = datetime.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        who = AwsCredentials(access_key="A", secret_key=SECRET, region="eu-west-1")
        url = f"http://{request.host}{request.path_qs}"
        again = signed_headers(who, request.method, url, await request.read(), {}, now=at)
        verified.append(again["Authorization"] == request.headers["Authorization"])
        return web.json_response({"encoding": request.headers["Accept-Encoding"]})

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "A")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    app = web.Application()
    app.router.add_post("/workspaces/ws-1/api/v1/query", answer)
    app.router.add_get("/workspaces/ws-1/api/v1/label/pod/values", answer)
    async with TestServer(app) as server:
        given = {
            "prometheus": f"http://127.0.0.1:{server.port}/workspaces/ws-1",
            **dict.fromkeys(("prometheus_token", "prometheus_user", "prometheus_password"), ""),
            "prometheus_insecure": False,
            "prometheus_ca": None,
            "headers": (),
            "prometheus_sigv4": "eu-west-1",
            "step": "auto",
            "history": None,
            "budget": 1,
            "parallel": 1,
            "watch_for": None,
        }
        prometheus = sources_of(given, SystemClock()).prometheus
        assert prometheus is not None
        body = await prometheus.post("/api/v1/query", {"query": 'up{job="a b"}', "time": "1"})
        await prometheus.get("/api/v1/label/pod/values", {"match[]": 'up{job="a b"}', "start": "1"})
    assert verified == [True, True]
    assert body == b'{"encoding": "identity"}'
