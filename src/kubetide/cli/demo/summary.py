"""The end of the story: what the day cost and gave, beside the same day without kubetide, and what is still wrong.

docs/reference/demo.md defines the figures.
"""

from collections.abc import Mapping

from kubetide.cli.demo.day import Outcome
from kubetide.embedded.sim.ledger import Account
from kubetide.embedded.sim.load.profile import WorkloadKey

Accounts = Mapping[WorkloadKey, Account]

_COUNTED = (
    ("ScalingReplicaSet", "scalings of a replica set"),
    ("SuccessfulRescale", "decisions of a horizontal autoscaler"),
    ("EvictedByVPA", "evictions by the vertical autoscaler"),
    ("InPlaceResizedByVPA", "resizes in place"),
    ("OOMKilling", "OOM kills"),
    ("FailedScheduling", "pods that had to wait for room"),
)
_WORTH_NAMING = 0.05
"""Core-hours and GiB-hours below this are not saved but rounded."""


def make_summary(outcome: Outcome, without: Accounts | None) -> str:
    """Return what the day was like, as text."""
    counts = [f"{outcome.reasons[reason]} {text}" for reason, text in _COUNTED if outcome.reasons[reason]]
    lines = ["", f"{outcome.elapsed} simulated: {', '.join(counts) or 'nothing'}."]
    lines += _table(outcome.accounts, without)
    asked, used = _sum(outcome.accounts, "asked_core_hours"), _sum(outcome.accounts, "used_core_hours")
    lines.append(f"In all {asked:.1f} core-hours were asked for and {used:.1f} used.")
    if without is not None:
        lines += ["", "Against the same day without kubetide, sized as in the manifests:"]
        lines += [f"  {line}" for line in comparison(outcome.accounts, without)]
    lines += _still_wrong(outcome)
    return "\n".join(lines)


def _table(accounts: Accounts, without: Accounts | None) -> list[str]:
    heads = ["workload", "pods", "asked", "used", "GiB-h", "well", "OOM"]
    rows = [heads if without is None else [*heads, "asked", "well", "OOM"]]
    for key, account in sorted(accounts.items()):
        row = [
            "/".join(key),
            _pods(account),
            f"{account.asked_core_hours:.1f}",
            f"{account.used_core_hours:.1f}",
            f"{account.asked_gib_hours:.1f}",
            percent(account.served_well),
            str(account.oom_kills or ""),
        ]
        if without is not None:
            other = without.get(key, Account())
            row += [f"{other.asked_core_hours:.1f}", percent(other.served_well), str(other.oom_kills or "")]
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    # 80 columns are enough for workloads with short names, so what the columns mean stands above them.
    title = "core-hours asked, used; GiB-hours asked; served well"
    if without is not None:
        title = title.ljust(sum(widths[: len(heads)]) + 2 * len(heads)) + "without kubetide"
    return [title, *lines]


def comparison(accounts: Accounts, without: Accounts) -> list[str]:
    """Return what was saved, what was spent and on what, and how requests, OOM kills and batch work compare."""
    lines = []
    for words, sign in (("saved", 1), ("spent", -1)):
        cpu, memory, who = 0.0, 0.0, []
        for key in sorted({*accounts, *without}):
            mine, other = accounts.get(key, Account()), without.get(key, Account())
            if mine.requests <= 0:  # batch work asks for what others leave over
                continue
            cores = max(0.0, sign * (other.asked_core_hours - mine.asked_core_hours))
            gib = max(0.0, sign * (other.asked_gib_hours - mine.asked_gib_hours))
            cpu, memory = cpu + cores, memory + gib
            if cores >= _WORTH_NAMING or gib >= _WORTH_NAMING:
                who.append(key[1])
        if who:
            lines.append(f"{words} {cpu:.1f} core-hours and {memory:.1f} GiB-hours of requests ({', '.join(who)})")
    lines.append(f"{_bad(accounts):,.0f} requests were lost or slow instead of {_bad(without):,.0f}")
    kills, others = _sum(accounts, "oom_kills"), _sum(without, "oom_kills")
    lines.append(f"{kills:.0f} OOM kills instead of {others:.0f}")
    lines.append(f"{_batch(accounts):.1f} core-hours of batch work done instead of {_batch(without):.1f}")
    return lines


def _still_wrong(outcome: Outcome) -> list[str]:
    wrong = [each for each in outcome.state.workloads if each.verdict.tone in ("warn", "bad")]
    if not wrong:
        return ["", "Nothing is wrong at the end."]
    lines = ["", "Still wrong at the end:"]
    for each in wrong:
        lines.append(f"  {each.key}  {each.verdict.text}")
        if each.verdict.remedy:
            lines.append(f"    FIX: {each.verdict.remedy}")
    return lines


def percent(share: float | None) -> str:
    """Return a share in tenths of a percent, rounded down: only what is whole is 100 %."""
    if share is None:
        return ""
    tenths = int(share * 1000 + 1e-9)
    return f"{tenths / 10:.1f}%"


def _pods(account: Account) -> str:
    if account.least_pods >= account.most_pods:
        return str(account.most_pods)
    return f"{account.least_pods}-{account.most_pods}"


def _sum(accounts: Accounts, name: str) -> float:
    return float(sum(getattr(account, name) for account in accounts.values()))


def _bad(accounts: Accounts) -> float:
    return sum(account.lost + account.slow for account in accounts.values())


def _batch(accounts: Accounts) -> float:
    """What workloads without requests of users have used: they live from the CPU they get."""
    return sum(account.used_core_hours for account in accounts.values() if account.requests <= 0)
