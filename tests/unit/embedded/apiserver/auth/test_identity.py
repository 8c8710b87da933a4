"""Kubeconfigs and the files they lie in."""

from pathlib import Path

import yaml

from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.identity import make_identity
from kubetide.embedded.apiserver.storage.datadir import write_private
from kubetide.kube.client.kubeconfig import from_files


def test_a_kubeconfig_can_be_used_as_it_is_written(tmp_path: Path) -> None:
    clock = SystemClock()
    identity = make_identity(None, now=clock.now())
    path = tmp_path / "deep" / "kubeconfig"
    write_private(path, identity.kubeconfig("https://127.0.0.1:6443"))
    assert path.stat().st_mode & 0o077 == 0
    assert from_files([path], clock=clock).server == "https://127.0.0.1:6443"
    assert yaml.safe_load(path.read_text())["users"][0]["user"] == {"token": identity.token}
