"""Where usage of containers comes from, as options of `recommend` and `plot`."""

import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from kubetide.cli.offline.record import DURATION
from kubetide.clock import Clock, SystemClock
from kubetide.errors import InvalidInput
from kubetide.recommend.core.sigv4 import AwsCredentials, signed_headers
from kubetide.recommend.gathering import AUTO, Sources
from kubetide.recommend.metrics_usage import Watch
from kubetide.recommend.prometheus_usage import Question
from kubetide.telemetry import Telemetry
from kubetide.vpa.recommender.prometheus import PrometheusHttp
from kubetide.vpa.recommender.settings import RecommenderSettings

_OPTIONS = (
    click.option(
        "--prometheus",
        metavar="URL",
        help="Where Prometheus is; `auto` finds it in the cluster. Default: auto, if found.",
    ),
    click.option("--prometheus-token", envvar="KUBETIDE_PROMETHEUS_TOKEN", default="", help="Bearer token."),
    click.option("--prometheus-user", default="", help="User name for basic authentication."),
    click.option("--prometheus-password", envvar="KUBETIDE_PROMETHEUS_PASSWORD", default="", help="Password for it."),
    click.option(
        "--prometheus-header", "headers", multiple=True, metavar="NAME=VALUE", help="A header, such as a tenant."
    ),
    click.option(
        "--prometheus-ca",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="CA certificates to trust.",
    ),
    click.option(
        "--prometheus-sigv4",
        default="",
        metavar="REGION[/SERVICE]",
        help="Sign requests for AWS with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.",
    ),
    click.option("--prometheus-insecure", is_flag=True, help="Do not verify the certificate."),
    click.option(
        "--step", default="auto", show_default=True, help="Distance of samples; auto widens it with the cluster."
    ),
    click.option("--budget", type=int, default=60_000_000, show_default=True, help="Samples to read at most."),
    click.option("--parallel", type=click.IntRange(1, 16), default=2, show_default=True, help="Queries at a time."),
    click.option("--watch-for", type=DURATION, help="Collect from the metrics API for so long where nothing is known."),
)


def usage_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, in their order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def sources_of(given: Mapping[str, Any], clock: SystemClock) -> Sources:
    """Return where options say that usage is."""
    url = given["prometheus"]
    step = None
    if given["step"] != "auto":
        step = DURATION.convert(given["step"], None, None)
    question = Question(history=given["history"], step=step, budget=given["budget"], parallel=given["parallel"])
    watch = Watch(given["watch_for"]) if given["watch_for"] is not None else None
    if url is None or url == AUTO:
        return Sources(find_prometheus=True, must_find=url == AUTO, question=question, watch=watch)
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(f"{url!r} is not a URL such as http://127.0.0.1:9090", field="--prometheus")
    settings = msgspec.structs.replace(
        RecommenderSettings(),
        prometheus_address=url,
        prometheus_bearer_token=given["prometheus_token"],
        username=given["prometheus_user"],
        password=given["prometheus_password"],
        prometheus_insecure=given["prometheus_insecure"],
    )
    tls = _trusting(given["prometheus_ca"]) if given["prometheus_ca"] else None
    headers = dict(pair(text, "--prometheus-header") for text in given["headers"])
    sign = _signer(given["prometheus_sigv4"], clock, os.environ)
    prometheus = PrometheusHttp(settings, Telemetry(), clock, headers=headers, tls=tls, sign=sign)
    return Sources(prometheus=prometheus, question=question, watch=watch)


def _trusting(file: Path) -> ssl.SSLContext:
    """Return what trusts the certificates of a file."""
    try:
        return ssl.create_default_context(cafile=str(file))
    except (ssl.SSLError, OSError) as error:
        raise InvalidInput(f"{file} has no certificates in PEM form: {error}", field="--prometheus-ca") from error


def _signer(
    text: str, clock: Clock, environment: Mapping[str, str]
) -> Callable[[str, bytes], Mapping[str, str]] | None:
    """Return what signs requests for AWS, if that is asked for."""
    if not text:
        return None
    region, _, service = text.partition("/")
    credentials = AwsCredentials(
        access_key=environment.get("AWS_ACCESS_KEY_ID", ""),
        secret_key=environment.get("AWS_SECRET_ACCESS_KEY", ""),
        session_token=environment.get("AWS_SESSION_TOKEN", ""),
        region=region,
        service=service or "aps",
    )
    if not (credentials.access_key and credentials.secret_key):
        missing = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set"
        raise InvalidInput(
            f'{missing}: eval "$(aws configure export-credentials --format env)"', field="--prometheus-sigv4"
        )
    return lambda url, body: signed_headers(credentials, "POST", url, body, {}, now=clock.now())


def pair(text: str, field: str) -> tuple[str, str]:
    """Return the halves of NAME=VALUE."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise InvalidInput(f"{text!r} is not NAME=VALUE", field=field)
    return name.strip(), value.strip()


class Progress:
    """A progress bar on standard error, with what is done per second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: dict[str, float] = {}

    def __call__(self, what: str, done: int, of: int) -> None:
        """Draw the bar."""
        now = self._clock.monotonic()
        seconds = now - self._began.setdefault(what, now)
        rate = f" {done / seconds:.1f}/s" if seconds > 0 else ""
        filled = done * 30 // max(1, of)
        end = "\n" if done >= of else ""
        click.echo(f"\r{what} [{'█' * filled}{'·' * (30 - filled)}] {done}/{of}{rate}{end}", err=True, nl=False)
