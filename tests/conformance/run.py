"""Run golden vectors against kubetide's own functions: `python tests/conformance/run.py PATH…`

Each PATH is a golden file or a folder of them. The key of a suite is `collection/suite`; the collection is told by
the shape of the file (`suite` member: node, `families` member: node-qos) or else by the folder (hpa, vpa, hpa-newer,
vpa-newer).

    --only KEY        run just this suite (may be repeated)
    --json            print one JSON document instead of the table
    --require-all     a suite without an adapter is a failure

Cases that kubetide does not follow on purpose (`exceptions.py`) are counted apart and shown with their reasons: named
differences, and what is not applicable because its subject is not in the product. Neither is a failure.

The last line is `N passed, N failed`; the exit code is 1 when anything failed.
"""

import argparse
import gzip
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance.exceptions import DIFFERENCES, NOT_APPLICABLE
from conformance.registry import CHECKS, SUITE, Case, NamedDifference, NotApplicable, Skip, load_adapters

SHOWN_DIFFERENCES = 3
COLLECTIONS = {"hpa", "vpa", "hpa-newer", "vpa-newer"}
HPA_SETS = {"replica_calc", "normalize", "reconcile", "api", "http", "quantity", "selector"}


@dataclass(slots=True)
class Result:
    """How one suite fared."""

    passed: int = 0
    failed: int = 0
    quirk: int = 0
    differs: dict[str, str] = field(default_factory=dict)
    """Named differences: the reason, by case."""
    not_applicable: dict[str, int] = field(default_factory=dict)
    """Cases whose subject is not in the product, by reason."""
    skipped: dict[str, int] = field(default_factory=dict)
    missing: int = 0
    differences: list[str] = field(default_factory=list)


def read_suites(path: Path) -> Iterator[tuple[str, list[Case]]]:
    """Yield (key, cases) for every suite in a file or folder."""
    if path.is_dir():
        for inner in sorted(path.iterdir()):
            if inner.is_dir() or inner.name.endswith((".json", ".jsonl", ".jsonl.gz", ".json.gz")):
                yield from read_suites(inner)
        return
    name = path.name.split(".")[0]
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if ".jsonl" in path.suffixes:
        cases = [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]
        yield f"{_collection(path, name)}/{name}", cases
        return
    document = msgspec.json.decode(data)
    if isinstance(document, dict) and "families" in document:
        for family, content in document["families"].items():
            yield f"node-qos/{family}", content["cases"]
    elif isinstance(document, dict) and "suite" in document:
        yield f"node/{document['suite']}", document["cases"]
    elif name == "histogram_buckets":
        yield f"vpa/{name}", [{"id": name, **document}]


def _collection(path: Path, name: str) -> str:
    for parent in path.resolve().parents:
        if parent.name in COLLECTIONS:
            return parent.name
    return "hpa" if name in HPA_SETS or name.startswith("upstream_") else "vpa"


def run_case(key: str, case: Case, result: Result) -> None:
    """Run one case and book its outcome."""
    if (reason := NOT_APPLICABLE.get(key)) is not None:
        _count(result.not_applicable, reason)
        return
    fixed = case.get("expectedFixed")
    if fixed is not None:
        case = {**case, "expected": fixed}
    elif "quirk" in case:
        result.quirk += 1
        return
    identity = str(case.get("id", "?"))
    try:
        found = list(CHECKS[key]({**case, SUITE: key}))
    except Skip as skip:
        _count(result.skipped, str(skip))
        return
    except NamedDifference as difference:
        result.differs[identity] = str(difference)
        return
    except NotApplicable as missing:
        _count(result.not_applicable, str(missing))
        return
    except Exception as error:  # a crash of the product is a failed case, and the run goes on
        found = [f"raised {type(error).__name__}: {error}"]
    if (named := DIFFERENCES.get(identity)) is not None:
        if found:
            result.differs[identity] = named
            return
        found = ["agrees, so it is no longer a named difference"]
    if found:
        result.failed += 1
        shown = found[:SHOWN_DIFFERENCES]
        if result.failed <= SHOWN_DIFFERENCES:
            result.differences.extend(f"{identity}: {line}" for line in shown)
    else:
        result.passed += 1


def _count(counts: dict[str, int], reason: str) -> None:
    counts[reason] = counts.get(reason, 0) + 1


def run(paths: Iterable[Path], *, only: Iterable[str] = (), require_all: bool = False) -> dict[str, Result]:
    """Run every suite below the paths; return the results by key."""
    broken = load_adapters()
    wanted = set(only)
    results: dict[str, Result] = {}
    if not wanted:
        for module, error in broken.items():
            results[f"adapters/{module}"] = Result(failed=1, differences=[error])
    for path in paths:
        for key, cases in read_suites(path):
            if wanted and key not in wanted:
                continue
            result = results.setdefault(key, Result())
            if key not in CHECKS and key not in NOT_APPLICABLE:
                result.missing += len(cases)
                if require_all:
                    result.failed += max(len(cases), 1)
                    result.differences.append("no adapter")
                continue
            for case in cases:
                run_case(key, case, result)
    return results


def render(results: dict[str, Result]) -> str:
    """Return the table and the first differences."""
    heads = f"{'passed':>7} {'failed':>7} {'differs':>7} {'quirk':>6} {'n/a':>4} {'no adapter':>10}"
    lines = [f"{'suite':44} {heads}  skipped by tag"]
    for key in sorted(results):
        result = results[key]
        tags = ", ".join(f"{tag}: {count}" for tag, count in sorted(result.skipped.items()))
        absent = sum(result.not_applicable.values())
        lines.append(
            f"{key:44} {result.passed:7} {result.failed:7} {len(result.differs):7} {result.quirk:6} {absent:4}"
            f" {result.missing:10}  {tags}".rstrip()
        )
        lines.extend(f"    {difference}" for difference in result.differences)
        lines.extend(f"    {which} differ: {reason}" for reason, which in sorted(_by_reason(result.differs).items()))
        lines.extend(f"    not applicable: {reason}" for reason in sorted(result.not_applicable))
    return "\n".join(lines)


def _by_reason(differs: dict[str, str]) -> dict[str, str]:
    """Return the cases of each reason, the first few by name."""
    cases: dict[str, list[str]] = {}
    for case, reason in sorted(differs.items()):
        cases.setdefault(reason, []).append(case)
    found: dict[str, str] = {}
    for reason, which in cases.items():
        more = len(which) - SHOWN_DIFFERENCES
        found[reason] = ", ".join(which[:SHOWN_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--require-all", action="store_true")
    options = parser.parse_args(arguments)
    if absent := [str(path) for path in options.paths if not path.exists()]:
        parser.error(f"no such file or folder: {', '.join(absent)}")
    results = run(options.paths, only=options.only, require_all=options.require_all)
    passed = sum(result.passed for result in results.values())
    failed = sum(result.failed for result in results.values())
    differs = sum(len(result.differs) for result in results.values())
    outside = sum(sum(result.not_applicable.values()) for result in results.values())
    if options.json:
        counts = {"passed": passed, "failed": failed, "differs": differs, "notApplicable": outside}
        print(msgspec.json.encode({"suites": _plain(results), **counts}).decode())
    else:
        print(render(results))
        print(f"{differs} named differences, {outside} not applicable")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not results else 0


def _plain(results: dict[str, Result]) -> dict[str, Any]:
    return {key: msgspec.to_builtins(results[key]) for key in sorted(results)}


if __name__ == "__main__":
    sys.exit(main())
