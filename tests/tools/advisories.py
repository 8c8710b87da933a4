"""Known advisories about the pinned dependencies, from OSV (https://osv.dev).

    python tests/tools/advisories.py [--lock requirements/all.lock] [--service https://api.osv.dev]

Sends names and versions of the lock, nothing else, and fails if an advisory names one of them. Where the service cannot
be reached nothing is known, and that is said: skipped is not passed.
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from wheels import pins  # type: ignore[import-not-found]

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 30.0


class Unreachable(Exception):
    """The service gave no answer that can be used."""


def advisories(listed: Sequence[tuple[str, str]], service: str) -> dict[tuple[str, str], list[str]]:
    """Return the advisories about each version that has any."""
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in listed]
    request = urllib.request.Request(
        f"{service}/v1/querybatch",
        data=json.dumps({"queries": queries}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            results = json.loads(answer.read())["results"]
        found = [[str(one["id"]) for one in (result or {}).get("vulns") or ()] for result in results]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Unreachable(str(error) or type(error).__name__) from error
    if len(found) != len(listed):
        raise Unreachable(f"{len(found)} answers to {len(listed)} questions")
    return {one: ids for one, ids in zip(listed, found, strict=True) if ids}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is known and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements/all.lock")
    parser.add_argument("--service", default="https://api.osv.dev")
    options = parser.parse_args(arguments)
    listed = sorted(pins(options.lock))
    try:
        found = advisories(listed, options.service)
    except Unreachable as error:
        print(f"advisories: skipped, {options.service} cannot be reached: {error}")
        return 0
    for (name, version), ids in found.items():
        print(f"{name} {version}: {', '.join(ids)}")
    print(f"advisories: {len(found)} of {len(listed)} pinned versions are named by one")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
