"""Tokens and keys: shown to whom they are for, and to nobody else; TLS that nobody breaks."""

import os
import socket
import ssl
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from kubetide.kube.client.certificates import KeyPair, make_ca
from kubetide.kube.client.credentials import Presented, bearer
from kubetide.kube.client.tls import Certificate, Pem, ServerTrust, client_context
from kubetide.kube.server_tls import ServerTls
from kubetide.metrics.settings import TLS_VERSIONS
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.recommender.settings import RecommenderSettings

TOKEN = "sup3r-s3cr3t-t0k3n"
SECONDS = 120


def closed_port() -> int:
    """Return a port of loopback on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_what_is_presented_to_a_server_does_not_show_up_in_a_traceback() -> None:
    identity = Certificate(certificate=Pem(data="certificate"), key=Pem(data=TOKEN))
    shown = f"{Presented(headers=bearer(TOKEN), certificate=identity)} {identity} {KeyPair(certificate='', key=TOKEN)}"
    assert TOKEN not in shown


def test_settings_hide_tokens_and_passwords_and_show_the_rest() -> None:
    settings = RecommenderSettings(prometheus_bearer_token=TOKEN, password=TOKEN, username="reader")
    shown = f"{settings} {settings!r}"
    assert TOKEN not in shown
    assert "username='reader'" in shown
    assert "password=<hidden>" in shown
    assert "prometheus_bearer_token_file=''" in shown


@pytest.mark.parametrize("command", [("doctor",), ("explain", "hpa", "default/web")], ids=lambda words: words[0])
def test_a_command_that_fails_prints_no_token(tmp_path: Path, command: tuple[str, ...]) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{closed_port()}"}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    words = [sys.executable, "-m", "kubetide", "--kubeconfig", str(path), *command]
    env = {**os.environ, "KUBETIDE_LOG_LEVEL": "debug"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False, env=env)
    assert done.returncode != 0
    assert TOKEN not in done.stdout + done.stderr


def test_clients_speak_tls_1_2_at_least_and_check_names() -> None:
    context = client_context(ServerTrust(), None)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def handshake(server: ssl.SSLContext, version: ssl.TLSVersion) -> str:
    """Return the version that a client which speaks only one is given; raises SSLError where there is none."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    client.set_ciphers("ALL:@SECLEVEL=0")
    client.minimum_version = client.maximum_version = version
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours, theirs = server.wrap_bio(to_server, to_client, server_side=True), client.wrap_bio(to_client, to_server)
    for _ in range(10):
        try:
            theirs.do_handshake()
        except ssl.SSLWantReadError:
            with suppress(ssl.SSLWantReadError):
                ours.do_handshake()
        else:
            return str(theirs.version())
    raise AssertionError("no end of the handshake")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_servers_refuse_what_is_older_than_tls_1_2() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    pair = make_ca("kubetide", now=now)
    tls = ServerTls(Certificate(certificate=Pem(data=pair.certificate), key=Pem(data=pair.key)), name="webhook")
    tls.load()
    assert handshake(tls.context(), ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    assert handshake(tls.context(), ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    with pytest.raises(ssl.SSLError):
        handshake(tls.context(), ssl.TLSVersion.TLSv1_1)


def test_no_setting_asks_for_less() -> None:
    assert AdmissionSettings().min_tls_version == "tls1_2"
    assert TLS_VERSIONS == ("VersionTLS12", "VersionTLS13")
