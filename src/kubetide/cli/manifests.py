"""`kubetide manifests`: what to apply so that kubetide runs in a cluster."""

import click
import yaml

from kubetide import __version__
from kubetide.api.values.codec import encode
from kubetide.clock import SystemClock
from kubetide.install.objects import COMPONENTS, DRY_RUN, dry_run_manifests, manifests
from kubetide.install.slo_webhook import make_slo_webhook


@click.command("manifests", short_help="CRDs, rights and workloads to install kubetide in a cluster.")
@click.argument("components", nargs=-1, metavar="[COMPONENT]...", type=click.Choice([*COMPONENTS, "all"]))
@click.option("-n", "--namespace", default="kube-system", show_default=True, help="Where the components run.")
@click.option("--image", default=f"kubetide:{__version__}", show_default=True, help="The container image.")
@click.option(
    "--replicas",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Copies of each controller; one acts, the others wait.",
)
@click.option("--crds/--no-crds", "with_crds", default=True, help="Include the custom resource definitions.")
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
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def command(
    components: tuple[str, ...],
    namespace: str,
    image: str,
    replicas: int,
    with_crds: bool,
    slo_webhook: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Print manifests as YAML, or as a JSON List: `kubetide manifests hpa | kubectl apply -f -`.

    COMPONENT is hpa, recommender, updater, admission, slo, colocation or node; without any all are meant.
    """
    chosen = COMPONENTS if not components or "all" in components else tuple(dict.fromkeys(components))
    if slo_webhook and "slo" not in chosen:
        raise click.UsageError("--slo-webhook is about the component slo")
    if dry_run:
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
            slo_webhook=make_slo_webhook(namespace, now=SystemClock().now()) if slo_webhook else None,
        )
    if output == "json":
        click.echo(encode({"apiVersion": "v1", "kind": "List", "items": objects}))
        return
    click.echo(as_yaml(objects), nl=False)


def as_yaml(objects: list[dict[str, object]]) -> str:
    """Return objects as one YAML stream."""
    return yaml.dump_all(objects, Dumper=_PlainDumper, sort_keys=False, explicit_start=True, width=120)


class _PlainDumper(yaml.SafeDumper):
    """Writes repeated values out: Kubernetes tools read YAML anchors, people do not."""

    def ignore_aliases(self, data: object) -> bool:
        return True
