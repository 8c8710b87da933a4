"""`kubetide doctor`: everything that is wrong in a cluster, one line each, with the command that mends it.

Objects are judged by the table of verdicts, components by whether they can run here. `check` is the same command
under its older name. Exit codes: 0 nothing is wrong, 1 something is, 2 something could not be looked at.
"""

import asyncio
from collections import Counter

import click

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.codec import encode
from kubetide.cli.compare import differences
from kubetide.cli.doctor.preflight import COMPONENT, NOT_INSTALLED, examine
from kubetide.cli.doctor.sarif import sarif
from kubetide.cli.explain.answer import COLOURS, styled
from kubetide.cli.main import Invocation
from kubetide.cli.places import client_of
from kubetide.clock import Clock, SystemClock
from kubetide.errors import Unavailable
from kubetide.install.objects import ALL, COMPONENTS
from kubetide.kube.client.client import Client
from kubetide.verdicts.cluster_reader import read_cluster
from kubetide.verdicts.core.finding import found
from kubetide.verdicts.core.judge import rows
from kubetide.verdicts.core.verdict import Finding, Severity, worst_first

EXIT_PROBLEMS = 1
EXIT_UNKNOWN = 2

_OBJECTS = {
    "hpa": ("hpa",),
    "recommender": ("vpa",),
    "updater": ("vpa", "pdb"),
    "admission": ("vpa", "webhook"),
    "slo": ("node",),
    "node": ("node",),
}
"""Which objects a component works on; without a component named, all are looked at."""


@click.command("doctor", short_help="What is wrong in a cluster, and the fix.")
@click.argument("components", nargs=-1, metavar="[COMPONENT]...", type=click.Choice([*COMPONENTS, "all"]))
@click.option("-o", "--output", type=click.Choice(["text", "json", "sarif"]), default="text", show_default=True)
@click.option(
    "--kubetide-namespace", default="kube-system", show_default=True, help="Where kubetide is, or will be, installed."
)
@click.pass_obj
def command(invocation: Invocation, components: tuple[str, ...], output: str, kubetide_namespace: str) -> int:
    """Look at autoscalers, workloads, budgets, nodes and webhooks, and whether components can run here.

    COMPONENT is hpa, recommender, updater, admission, policy, slo, colocation, node, metrics or plan; without any all
    but the last two are meant. Objects of all namespaces are looked at, or those of -n.

    Exit code 1 says that something is wrong, 2 that something could not be looked at.
    """
    everything = not components or "all" in components
    chosen = ALL if everything else tuple(dict.fromkeys(components))
    findings = asyncio.run(_examined(invocation, chosen, kubetide_namespace))
    if everything:
        findings = without_absent(findings)
    else:
        kinds = {"cluster", "component", *(kind for name in chosen for kind in _OBJECTS.get(name, ()))}
        findings = [finding for finding in findings if finding.kind in kinds]
    code = exit_code(findings)
    if output == "json":
        click.echo(encode([finding.row() for finding in findings]))
    elif output == "sarif":
        click.echo(encode(sarif(findings, looked=not any(_unknown(finding) for finding in findings))))
    else:
        _print(findings)
    return code


async def _examined(invocation: Invocation, components: tuple[str, ...], own_namespace: str) -> list[Finding]:
    client = client_of(invocation)
    try:
        findings = await diagnose(
            client,
            components,
            SystemClock(),
            namespace=invocation.namespace or "",
            own_namespace=own_namespace,
        )
    finally:
        await client.close()
    return worst_first([*findings, *(_differs(one) for one in await differences(invocation))])


def _differs(one: dict[str, str]) -> Finding:
    """Return the finding about a decision in which a running comparison differs from upstream."""
    kinds = {"HorizontalPodAutoscaler": "hpa", "VerticalPodAutoscaler": "vpa", "Pod": "pod"}
    kind, _, name = one["object"].partition(" ")
    key = ObjectKey("", one["component"])
    explained = f"{kinds.get(kind, kind.lower())} {name}"
    texts = {"object": one["object"], "upstream": one["upstream"], "ours": one["kubetide"], "explained": explained}
    return found("upstream-differs", "component", key, **texts)


async def diagnose(
    client: Client,
    components: tuple[str, ...],
    clock: Clock,
    *,
    namespace: str = "",
    own_namespace: str = "kube-system",
) -> list[Finding]:
    """Return everything there is to say about a cluster, worst first."""
    try:
        # First: its clock is the one by which leases are fresh or not.
        view = await read_cluster(client, clock, namespace=namespace)
    except Unavailable:
        return await examine(client, components, clock.now(), namespace=own_namespace)
    asked = await examine(client, components, view.now, namespace=own_namespace)
    return worst_first([*rows(view), *asked])


def without_absent(findings: list[Finding]) -> list[Finding]:
    """Return findings in which a component that nobody has installed is one note instead of many errors."""
    by_component: dict[ObjectKey, list[Finding]] = {}
    for finding in findings:
        if finding.kind == COMPONENT and finding.severity not in (Severity.OK, Severity.NOTE):
            by_component.setdefault(finding.key, []).append(finding)
    absent = {
        key: found("component-absent", COMPONENT, key, resource=", ".join(one.values["resource"] for one in group))
        for key, group in by_component.items()
        if all(finding.verdict.id in NOT_INSTALLED for finding in group)
    }
    kept = [finding for finding in findings if finding.kind != COMPONENT or finding.key not in absent]
    return worst_first([*kept, *absent.values()])


def exit_code(findings: list[Finding]) -> int:
    """Return the code to exit with."""
    if any(finding.severity.is_problem for finding in findings):
        return EXIT_PROBLEMS
    return EXIT_UNKNOWN if any(_unknown(finding) for finding in findings) else 0


def _unknown(finding: Finding) -> bool:
    return finding.severity is Severity.UNKNOWN


def _print(findings: list[Finding]) -> None:
    width = max((len(finding.subject) for finding in findings), default=0)
    for finding in findings:
        mark = click.style(f"{finding.severity.value:8}", fg=COLOURS[finding.severity])
        click.echo(f"{mark} {finding.subject:<{width}}  {styled(finding)}")
        if finding.remedy:
            click.echo(f"{'':8} {'':<{width}}  FIX: {finding.remedy}")
    counts = Counter(finding.severity for finding in findings)
    told = [
        f"{counts[one]} {one.value}{'s' if counts[one] > 1 and one is not Severity.UNKNOWN else ''}"
        for one in Severity
        if one is not Severity.OK and counts[one]
    ]
    click.echo(", ".join(told) if told else "nothing is wrong")
