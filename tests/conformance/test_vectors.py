"""Every golden vector that this machine has, one test per suite."""

from pathlib import Path

import pytest

from conformance import exceptions
from conformance.registry import CHECKS, load_adapters
from conformance.run import Result, main, read_suites, run_case

_ROOT = Path(__file__).resolve().parents[2]
_SHARED = _ROOT.parent / "shared"
_FOLDERS = [_ROOT / "tests" / "vectors", _SHARED / "golden", _SHARED / "golden-newer"]
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
    assert key in CHECKS or key in exceptions.NOT_APPLICABLE, f"no adapter for {key}"
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


def _quantity(tmp_path: Path, identity: str, milli: int) -> list[str]:
    """Return the arguments that run one case of `hpa/quantity`, whose right answer is 1000."""
    folder = tmp_path / "hpa"
    folder.mkdir(exist_ok=True)
    (folder / "quantity.jsonl").write_text(
        f'{{"id":"{identity}","input":"1","milliValue":{milli},"value":1,"sign":1,"canonical":"1","asMilliDecimalSI":"1"}}\n'
    )
    return [str(tmp_path), "--only", "hpa/quantity", "--require-all"]


def test_a_named_difference_is_counted_apart_and_shown_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(exceptions.DIFFERENCES, "q", "ours is safer")
    assert main(_quantity(tmp_path, "q", 1001)) == 0
    out = capsys.readouterr().out
    assert "q differ: ours is safer" in out
    assert out.splitlines()[-2:] == ["1 named differences, 0 not applicable", "0 passed, 0 failed"]


def test_a_named_difference_that_agrees_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(exceptions.DIFFERENCES, "q", "ours was safer once")
    assert main(_quantity(tmp_path, "q", 1000)) == 1
    assert "no longer a named difference" in capsys.readouterr().out


def test_a_suite_without_a_subject_is_not_a_missing_adapter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "proxy.json").write_text(
        '{"families":{"proxy_docker_env":{"cases":[{"id":"x","input":{},"expected":{}}]}}}'
    )
    assert main([str(tmp_path), "--only", "node-qos/proxy_docker_env", "--require-all"]) == 0
    out = capsys.readouterr().out
    assert "not applicable: the runtime proxy speaks CRI only" in out
    assert out.splitlines()[-2:] == ["0 named differences, 1 not applicable", "0 passed, 0 failed"]


def test_a_suite_has_an_adapter_or_a_reason_but_not_both() -> None:
    assert CHECKS.keys() & exceptions.NOT_APPLICABLE.keys() == set()


def test_newer_collections_have_keys_of_their_own(tmp_path: Path) -> None:
    for collection in ("hpa", "hpa-newer", "vpa-newer"):
        (tmp_path / collection).mkdir()
        (tmp_path / collection / "api.jsonl").write_text('{"id":"x"}\n')
    assert [key for key, _ in read_suites(tmp_path)] == ["hpa/api", "hpa-newer/api", "vpa-newer/api"]


def test_a_missing_adapter_is_a_failure_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.json").write_text('{"suite":"never_heard_of","cases":[{"id":"x","input":{},"expected":{}}]}')
    only = ["--only", "node/never_heard_of"]
    assert main([str(tmp_path), *only]) == 0
    assert main([str(tmp_path), *only, "--require-all"]) == 1
    assert "never_heard_of" in capsys.readouterr().out
