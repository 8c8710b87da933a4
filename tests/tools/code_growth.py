"""Why the source is as large as it is, commit by commit: `cd tests; python -m tools.code_growth`, in a whole clone.

A module of today holds features of then and rules, guards and verbs that came since, so the size of modules does not
say what the same features cost. Commits do: each one is counted (code lines after it less code lines before it, by
folder) and belongs either to the house, that is to how the same features are written (`HOUSE`, and every commit whose
subject begins with one of `AREAS`), or to what the product did not do before. Lines before, the house's and the others'
add up to the lines of now; what is left over was decided while merging and is shown as such.

A commit that does both counts for the house only in the folders that are named with it, or by the lines that were
counted when it was made (`LINES`).
"""

import subprocess
from collections import Counter
from functools import cache

from tools.code_size import code_lines

BEFORE = "54f71951"
"""The revision in which file names decided purity."""
AREAS = ("tree:", "words:", "layout:", "house:")
HOUSE: dict[str, tuple[str, ...]] = dict.fromkeys(
    (
        "53002d9f", "468f3c74", "1dabd3db", "1a02fce4", "b8b43477", "bb58f66a", "39292177", "a6817ec5", "2e3eebd9",
        "71e6716f", "29fb4564", "118e0d3a", "5c6bf2a9", "b777073b", "1d8b7e63", "e2e24fde", "3036bd97", "9d6dda3f",
        "c2ac65aa", "3283fcc2", "4b6c56a9", "f7af7174", "cc22ed3a", "fc61a72c", "f8690a7c", "3baf963a",
    ),
    (),
) | {"5a6c431f": ("vpa", "kube"), "df4dea09": ("cli",)}  # fmt: skip
"""Commits that change how something is written, and not what it does."""
LINES: dict[str, dict[str, int]] = {
    "0c96ec08": {"api": -21},
    "7471ea79": {"kube": 17},
    "1bd82a49": {"hpa": -78},
    "45def8e4": {"vpa": -82},
    "1e320e90": {"slo": -28},
    "439d887d": {"embedded": -69},
}
"""Large commits that add a feature and also tidy: how many lines more or fewer the tidying left."""
FOLDERS = ("api", "kube", "hpa", "vpa", "slo", "node", "embedded", "stats", "cli", "testing")


def git(*arguments: str) -> str:
    """Return what git answers."""
    return subprocess.run(("git", *arguments), capture_output=True, text=True, check=True).stdout


@cache
def lines_of(blob: str) -> int:
    """Return the code lines of a file; there are none where it does not exist."""
    return code_lines(git("cat-file", "blob", blob)) if blob.strip("0") else 0


def growth(old: str, new: str) -> Counter[str]:
    """Return how many code lines each folder has more in one revision than in another."""
    found: Counter[str] = Counter()
    for row in git("diff-tree", "-r", "--no-renames", "--no-abbrev", old, new, "--", ":/src/kubetide").splitlines():
        facts, path = row.split("\t")
        _, _, before, after, _ = facts.split()
        parts = path.split("/")[2:]
        if path.endswith(".py") and not path.endswith("_pb2.py"):
            found[parts[0] if len(parts) > 1 else "."] += lines_of(after) - lines_of(before)
    return found


def is_house(commit: str, subject: str, folder: str) -> bool:
    """Return whether what a commit did to a folder is about how the same features are written."""
    only = HOUSE.get(commit[: len(BEFORE)])
    return subject.startswith(AREAS) or (only is not None and (not only or folder in only))


def main() -> None:
    """Print, by folder, the lines of then, what was added for which purpose, and the lines of now."""
    house: Counter[str] = Counter()
    added: Counter[str] = Counter()
    for row in git("log", "--no-merges", "--format=%H %s", f"{BEFORE}..HEAD").splitlines():
        commit, _, subject = row.partition(" ")
        tidied = LINES.get(commit[: len(BEFORE)], {})
        house.update(tidied)
        for folder, lines in growth(f"{commit}^", commit).items():
            (house if is_house(commit, subject, folder) else added)[folder] += lines - tidied.get(folder, 0)
    empty = git("hash-object", "-t", "tree", "/dev/null").strip()
    then, more = growth(empty, BEFORE), growth(BEFORE, "HEAD")
    print(f"{'':10s} {'before':>8s} {'same features':>14s} {'':>8s} {'new':>7s} {'merging':>8s} {'now':>7s}")
    for column in (then, house, added, more):
        column["together"] = sum(column[name] for name in FOLDERS)
    for name in (*FOLDERS, "together"):
        before, same, new = then[name], house[name], added[name]
        print(f"{name:10s} {before:8d} {before + same:14d} {same:+8d} {new:+7d} {more[name] - same - new:+8d}", end="")
        print(f" {before + more[name]:7d}")


if __name__ == "__main__":
    main()
