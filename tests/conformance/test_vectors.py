"""Every golden vector that this machine has, one test per suite."""

from pathlib import Path

import pytest

from conformance.registry import CHECKS, load_adapters
from conformance.run import Result, main, read_suites, run_case

_ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = [_ROOT / "tests" / "vectors", _ROOT.parent / "shared" / "golden"]
_BROKEN = load_adapters()


def _suites() -> dict[str, list[tuple[str, list[dict[str, object]]]]]:
    found: dict[str, list[tuple[str, list[dict[str, object]]]]] = {}
    for folder in _FOLDERS:
        if folder.is_dir():
            for key, cases in read_suites(folder):
                found.setdefault(key, []).append((folder.name, cases))
    return found


_SUITES = _suites()


def test_every_adapter_can_be_imported() -> None:
    assert _BROKEN == {}


@pytest.mark.parametrize("key", sorted(_SUITES))
def test_suite_passes(key: str) -> None:
    assert key in CHECKS, f"no adapter for {key}"
    result = Result()
    seen: set[object] = set()
    for _, cases in _SUITES[key]:
        for case in cases:
            if case.get("id") not in seen:
                seen.add(case.get("id"))
                run_case(key, case, result)
    assert result.differences == []
    assert result.failed == 0


def test_the_runner_fails_on_a_wrong_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "hpa"
    folder.mkdir()
    (folder / "quantity.jsonl").write_text(
        '{"id":"q","input":"1","milliValue":1001,"value":1,"sign":1,"canonical":"1","asMilliDecimalSI":"1"}\n'
    )
    assert main([str(tmp_path), "--only", "hpa/quantity"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed"


def test_a_missing_adapter_is_a_failure_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.json").write_text('{"suite":"never_heard_of","cases":[{"id":"x","input":{},"expected":{}}]}')
    only = ["--only", "node/never_heard_of"]
    assert main([str(tmp_path), *only]) == 0
    assert main([str(tmp_path), *only, "--require-all"]) == 1
    assert "never_heard_of" in capsys.readouterr().out
