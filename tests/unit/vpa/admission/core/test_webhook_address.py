"""The address that the API server is given when the webhook registers by URL."""

import pytest

from kubetide.errors import SettingsError
from kubetide.vpa.admission.core.registration import WebhookAddress


@pytest.mark.parametrize(
    ("address", "port", "url", "is_ip"),
    [
        pytest.param("127.0.0.1", "", "https://127.0.0.1:8000/", True, id="an-address"),
        pytest.param("https://127.0.0.1", "", "https://127.0.0.1:8000/", True, id="the-form-that-works-upstream"),
        pytest.param("https://127.0.0.1/", "443", "https://127.0.0.1:443/", True, id="with-its-port-beside-it"),
        pytest.param("https://vpa.example:9443", "", "https://vpa.example:9443/", False, id="with-its-port-in-it"),
        pytest.param("vpa.example", "9443", "https://vpa.example:9443/", False, id="a-name"),
        pytest.param("::1", "", "https://[::1]:8000/", True, id="ipv6"),
        pytest.param("https://[::1]", "", "https://[::1]:8000/", True, id="ipv6-url"),
    ],
)
def test_an_address_may_be_a_host_or_a_url(address: str, port: str, url: str, is_ip: bool) -> None:
    found = WebhookAddress.parse(address, port)
    assert (found.url(8000), found.is_ip) == (url, is_ip)


@pytest.mark.parametrize(
    ("address", "port"),
    [("", ""), ("http://127.0.0.1", ""), ("https://", ""), ("https://a/b", ""), ("https://a:b", ""), ("a", "x")],
)
def test_what_is_no_address_is_refused_with_the_flag(address: str, port: str) -> None:
    with pytest.raises(SettingsError, match=r"flag --webhook-(address|port)"):
        WebhookAddress.parse(address, port)
