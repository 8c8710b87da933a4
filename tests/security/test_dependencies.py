"""What kubetide depends on: known advisories, and wheels for machines that CI does not run on."""

import importlib.util
import json
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str) -> ModuleType:
    """Return a program of tests/tools as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests/tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


wheels = tool("wheels")
advisories = tool("advisories")


def test_every_dependency_of_the_image_has_a_wheel_for_arm64_and_macos() -> None:
    table = json.loads((ROOT / "requirements/wheels.json").read_text())
    assert set(table) == set(wheels.PLATFORMS)
    listed = wheels.pins(ROOT / "requirements/image.lock")
    assert len(listed) > 20
    for platform, rows in table.items():
        for (name, version), hashes in listed.items():
            row = rows.get(f"{name}=={version}")
            assert row is not None, f"{name} {version} has no wheel for {platform}: run make wheels after make lock"
            # The hash proves that this very file is what the lock pins.
            assert row["sha256"] in hashes, f"{row['file']} is not pinned: run make wheels after make lock"
            assert row["file"].endswith(".whl")


def test_the_image_needs_nothing_that_the_runtime_lock_pins_otherwise() -> None:
    image, runtime = (wheels.pins(ROOT / f"requirements/{name}.lock") for name in ("image", "runtime"))
    assert image.items() >= runtime.items()


class Osv(BaseHTTPRequestHandler):
    """Answers as OSV does, with an advisory about one package."""

    answer: Any = None
    asked: list[Any] = []  # noqa: RUF012 - a handler is made for each request

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        named = [{"vulns": [{"id": "GHSA-1"}]} if q["package"]["name"] == "bad" else {} for q in body["queries"]]
        text = json.dumps(self.answer if self.answer is not None else {"results": named}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments: Any) -> None:
        """Be quiet."""


@pytest.fixture
def service() -> Any:
    server = HTTPServer(("127.0.0.1", 0), Osv)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
    Osv.answer = None
    Osv.asked.clear()


def lock(folder: Path, *names: str) -> str:
    """Write a lock."""
    path = folder / "some.lock"
    path.write_text("".join(f"{name}==1.0 \\\n    --hash=sha256:{'0' * 64}\n" for name in names))
    return str(path)


@pytest.mark.parametrize(("names", "code"), [(("good", "bad"), 1), (("good",), 0)], ids=["named", "clean"])
def test_an_advisory_about_a_pinned_version_fails(
    service: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...], code: int
) -> None:
    assert advisories.main(["--lock", lock(tmp_path, *names), "--service", service]) == code
    said = capsys.readouterr().out
    assert ("bad 1.0: GHSA-1" in said) == bool(code)
    (asked,) = Osv.asked
    assert [sorted(query) for query in asked["queries"]] == [["package", "version"]] * len(names)


def test_a_service_that_cannot_be_reached_is_said_not_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert advisories.main(["--lock", lock(tmp_path, "good"), "--service", f"http://127.0.0.1:{port}"]) == 0
    assert f"advisories: skipped, http://127.0.0.1:{port} cannot be reached:" in capsys.readouterr().out


@pytest.mark.parametrize("answer", [{"results": []}, {"error": 1}, [], {"results": [1]}], ids=repr)
def test_an_answer_that_is_none_counts_as_no_answer(
    service: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: Any
) -> None:
    Osv.answer = answer
    assert advisories.main(["--lock", lock(tmp_path, "good"), "--service", service]) == 0
    assert "skipped" in capsys.readouterr().out
