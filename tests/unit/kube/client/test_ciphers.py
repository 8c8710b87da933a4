"""Names of TLS ciphers, as the original takes them."""

import ssl

import pytest

from kubetide.kube.client.tls import openssl_ciphers


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256", id="gcm"),
        pytest.param("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384", id="ecdsa"),
        pytest.param("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305", id="chacha"),
        pytest.param("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "ECDHE-RSA-CHACHA20-POLY1305", id="its-old-name"),
        pytest.param("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA", id="cbc"),
        pytest.param("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256", id="cbc-sha256"),
        pytest.param("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", id="openssl-name"),
        pytest.param("TLS_AES_128_GCM_SHA256,TLS_NO_SUCH", "", id="tls-1.3-and-unknown-are-left-out"),
        pytest.param(
            "TLS_RSA_WITH_AES_128_GCM_SHA256:TLS_NO_SUCH, TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
            "AES128-GCM-SHA256:ECDHE-RSA-AES256-SHA",
            id="either-separator",
        ),
        pytest.param("", "", id="nothing"),
    ],
)
def test_ciphers_are_known_by_the_names_of_upstream(given: str, expected: str) -> None:
    found = openssl_ciphers(given)
    assert found == expected
    if found:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(found)
