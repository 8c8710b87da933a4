"""`kubetide manifests`: what to apply so that kubetide runs in a cluster."""

from pathlib import Path

import click

from kubetide import __version__, crds
from kubetide.api.values.codec import encode
from kubetide.clock import SystemClock
from kubetide.install.dashboard import COMPONENT, dashboard_manifests
from kubetide.install.metrics_api import USAGE, api_services
from kubetide.install.objects import (
    ALL,
    COMPONENTS,
    DRY_RUN,
    NAMESPACED,
    dry_run_manifests,
    manifests,
    required_crds,
)
from kubetide.install.packaging import as_yaml, write
from kubetide.install.sizes import DEFAULT, PODS
from kubetide.install.slo_webhook import make_slo_webhook


@click.command("manifests", short_help="CRDs, rights and workloads to install kubetide in a cluster.")
@click.argument("components", nargs=-1, metavar="[COMPONENT]...", type=click.Choice([*COMPONENTS, COMPONENT, "all"]))
@click.option("-n", "--namespace", default="kube-system", show_default=True, help="Where the components run.")
@click.option("--image", default=f"kubetide:{__version__}", show_default=True, help="The container image.")
@click.option(
    "--replicas",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Copies of each controller; one acts, the others wait.",
)
@click.option(
    "--size",
    type=click.Choice(list(PODS)),
    default=DEFAULT,
    show_default=True,
    help="What components request: for clusters of up to 1,000, 10,000 or 50,000 pods.",
)
@click.option("--crds/--no-crds", "with_crds", default=True, help="Include the custom resource definitions.")
@click.option("--crds-only", is_flag=True, help="The custom resource definitions alone, to bring them up to date.")
@click.option(
    "--slo-webhook/--no-slo-webhook",
    default=False,
    help="Switch the validating webhook of the SLO controller on: with a new certificate, a Service, its registration.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Objects that let the components look and write nothing, beside those that act: read-only roles, and "
    "workloads with --dry-run.",
)
@click.option(
    "--metrics-api",
    "metrics_apis",
    type=click.Choice(["custom", "external"]),
    multiple=True,
    help="Lead custom.metrics.k8s.io or external.metrics.k8s.io to the metrics server too. A cluster has one server "
    "for each; others can be asked behind it.",
)
@click.option(
    "--watch-namespace", default="", help="Keep the components to this namespace, in what they see and may do."
)
@click.option(
    "--write",
    "deploy",
    type=click.Path(file_okay=False, path_type=Path),
    hidden=True,
    help="Write what the Helm chart and the Kustomize bases are made of below this folder, and print nothing.",
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def command(
    components: tuple[str, ...],
    namespace: str,
    image: str,
    replicas: int,
    size: str,
    with_crds: bool,
    crds_only: bool,
    slo_webhook: bool,
    dry_run: bool,
    metrics_apis: tuple[str, ...],
    watch_namespace: str,
    deploy: Path | None,
    output: str,
) -> None:
    """Print manifests as YAML, or as a JSON List: `kubetide manifests hpa | kubectl apply -f -`.

    COMPONENT is hpa, recommender, updater, admission, policy, slo, colocation, node, metrics, plan or dashboard;
    without any, or with all, all but the last three are meant: metrics takes metrics.k8s.io over from the server that
    is there, plan brings an API of its own, and dashboard opens a page to log in with a token (it has no permission of
    its own).
    """
    named = tuple(name for name in dict.fromkeys(components) if name != COMPONENT)
    chosen = ALL if "all" in named or not components else named
    if deploy is not None:
        write(deploy, image=image)
        return
    if watch_namespace and (refused := [name for name in chosen if name not in NAMESPACED]):
        raise click.UsageError(f"--watch-namespace is not for {', '.join(refused)}: only {', '.join(NAMESPACED)}")
    if watch_namespace and dry_run:
        raise click.UsageError("--watch-namespace and --dry-run do not go together")
    if slo_webhook and "slo" not in chosen:
        raise click.UsageError("--slo-webhook is about the component slo")
    if metrics_apis and "metrics" not in chosen:
        raise click.UsageError("--metrics-api is about the component metrics")
    if crds_only:
        wanted = dict.fromkeys(name for component in chosen for name, _ in required_crds(component))
        objects = [crds.load(name) for name in wanted]
    elif dry_run:
        if slo_webhook:
            raise click.UsageError("--slo-webhook registers a webhook; --dry-run writes nothing")
        if refused := [name for name in components if name not in (*DRY_RUN, "all")]:
            raise click.UsageError(f"--dry-run is not for {', '.join(refused)}: only {', '.join(DRY_RUN)}")
        looking = tuple(name for name in chosen if name in DRY_RUN)
        objects = dry_run_manifests(looking, namespace=namespace, image=image)
    else:
        objects = manifests(
            chosen,
            namespace=namespace,
            image=image,
            with_crds=with_crds,
            replicas=replicas,
            watched=watch_namespace,
            size=size,
            slo_webhook=make_slo_webhook(namespace, now=SystemClock().now()) if slo_webhook else None,
        )
        objects += api_services(namespace, [f"{name}.{USAGE}" for name in dict.fromkeys(metrics_apis)])
    if COMPONENT in components:
        objects += dashboard_manifests(namespace=namespace, image=image, replicas=replicas, size=size)
    if output == "json":
        click.echo(encode({"apiVersion": "v1", "kind": "List", "items": objects}))
        return
    click.echo(as_yaml(objects), nl=False)
