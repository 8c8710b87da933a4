"""Names of TLS ciphers: Go's, which upstream's `--tls-ciphers` takes, to those of OpenSSL.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256          ECDHE-RSA-AES128-GCM-SHA256
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256  ECDHE-ECDSA-CHACHA20-POLY1305
    TLS_RSA_WITH_AES_256_CBC_SHA                   AES256-SHA

Names of OpenSSL are taken too, unknown ones are left out. The ciphers of TLS 1.3 cannot be chosen, here as there.
"""

import re

_GO = re.compile(
    r"TLS_(?:(?P<exchange>ECDHE)_)?(?P<key>RSA|ECDSA)_WITH_"
    r"(?:AES_(?P<bits>128|256)_(?P<mode>GCM|CBC)_(?P<digest>SHA|SHA256|SHA384)|(?P<chacha>CHACHA20_POLY1305)(?:_SHA256)?)"
)
_OPENSSL = re.compile(r"(?:ECDHE-(?:RSA|ECDSA)-)?(?:AES(?:128|256)(?:-GCM)?-SHA(?:256|384)?|CHACHA20-POLY1305)")


def openssl_ciphers(text: str) -> str:
    """Return the cipher list for OpenSSL; empty when nothing is known, which leaves the choice to the library."""
    names = (name.strip() for name in re.split(r"[,:]", text))
    return ":".join(found for name in names if (found := _translated(name)))


def _translated(name: str) -> str:
    if _OPENSSL.fullmatch(name):
        return name
    parts = _GO.fullmatch(name)
    if parts is None:
        return ""
    prefix = f"ECDHE-{parts['key']}-" if parts["exchange"] else ""
    if parts["chacha"]:
        return f"{prefix}CHACHA20-POLY1305"
    mode = "-GCM" if parts["mode"] == "GCM" else ""
    return f"{prefix}AES{parts['bits']}{mode}-{parts['digest']}"
