"""How Prometheus is reached, as options of every verb that asks it: tokens, headers, certificates, signatures."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from kubetide.clock import Clock
from kubetide.errors import InvalidInput
from kubetide.recommend.core.sigv4 import AwsCredentials, signed_headers
from kubetide.telemetry import Telemetry
from kubetide.vpa.recommender.prometheus import PrometheusHttp, trusting
from kubetide.vpa.recommender.settings import RecommenderSettings

_OPTIONS = (
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
)


_NAMES = (
    "prometheus_token",
    "prometheus_user",
    "prometheus_password",
    "headers",
    "prometheus_ca",
    "prometheus_sigv4",
    "prometheus_insecure",
)


def prometheus_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, in their order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def given_for_a_url(given: Mapping[str, Any]) -> str:
    """Return an option of the command line that only a URL has a use for; empty without one."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in _NAMES and given[option.name]:
            source = context.get_parameter_source(option.name)
            if source is ParameterSource.COMMANDLINE:  # a token in the environment may be for another day
                return option.opts[0]
    return ""


def prometheus_settings(url: str, given: Mapping[str, Any]) -> RecommenderSettings:
    """Return the settings that say where Prometheus is and who asks."""
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(f"{url!r} is not a URL such as http://127.0.0.1:9090", field="--prometheus")
    if given["prometheus_user"] and not given["prometheus_password"]:
        raise InvalidInput("needs --prometheus-password, or KUBETIDE_PROMETHEUS_PASSWORD", field="--prometheus-user")
    return msgspec.structs.replace(
        RecommenderSettings(),
        prometheus_address=url,
        prometheus_bearer_token=given["prometheus_token"],
        username=given["prometheus_user"],
        password=given["prometheus_password"],
        prometheus_insecure=given["prometheus_insecure"],
    )


def prometheus_at(url: str, given: Mapping[str, Any], clock: Clock) -> PrometheusHttp:
    """Return Prometheus at a URL, asked as the options say."""
    settings = prometheus_settings(url, given)
    tls = trusting(str(given["prometheus_ca"]), "--prometheus-ca") if given["prometheus_ca"] else None
    headers = dict(pair(text, "--prometheus-header") for text in given["headers"])
    sign = _signer(given["prometheus_sigv4"], clock, os.environ)
    return PrometheusHttp(settings, Telemetry(), clock, headers=headers, tls=tls, sign=sign)


def _signer(
    text: str, clock: Clock, environment: Mapping[str, str]
) -> Callable[[str, str, bytes], Mapping[str, str]] | None:
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
    return lambda method, url, body: signed_headers(credentials, method, url, body, {}, now=clock.now())


def pair(text: str, field: str) -> tuple[str, str]:
    """Return the halves of NAME=VALUE."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise InvalidInput(f"{text!r} is not NAME=VALUE", field=field)
    return name.strip(), value.strip()
