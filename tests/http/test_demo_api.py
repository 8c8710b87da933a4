"""`kubetide demo --http`: the API of the demo is open to others while it runs, and Ctrl-C ends it with a summary."""

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import yaml


def start(directory: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "kubetide", "demo", "--speed", "60", "--bare", "--http", "--port", "0"]
    return subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def get(directory: Path, path: str) -> dict[str, Any]:
    config = yaml.safe_load((directory / "kubetide.kubeconfig").read_text())
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    token = config["users"][0]["user"]["token"]
    request = urllib.request.Request(
        config["clusters"][0]["cluster"]["server"] + path, headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, context=context, timeout=30) as answer:
        decoded: dict[str, Any] = json.load(answer)
        return decoded


def test_the_demo_serves_its_api_and_ends_with_a_summary(tmp_path: Path) -> None:
    demo = start(tmp_path)
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "export KUBECONFIG=" in line:
                break
        nodes = get(tmp_path, "/api/v1/nodes")
        assert [node["metadata"]["name"] for node in nodes["items"]] == ["node-1", "node-2", "node-3"]
        deployments = get(tmp_path, "/apis/apps/v1/namespaces/shop/deployments")
        assert "storefront" in {each["metadata"]["name"] for each in deployments["items"]}
        demo.send_signal(signal.SIGINT)
        out, error = demo.communicate(timeout=60)
    finally:
        demo.kill()
        demo.wait()
    assert demo.returncode == 0, error
    assert " simulated: " in out
    assert "In all " in out
