"""Where usage of containers comes from, as options of `recommend` and `plot`."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from kubetide.cli.offline.prometheus_options import given_for_a_url, prometheus_at, prometheus_options
from kubetide.cli.offline.record import DURATION
from kubetide.clock import Clock, SystemClock
from kubetide.errors import InvalidInput
from kubetide.recommend.gathering import AUTO, Sources
from kubetide.recommend.metrics_usage import Watch
from kubetide.recommend.prometheus_usage import Question

_OPTIONS = (
    click.option(
        "--prometheus",
        metavar="URL",
        help="Where Prometheus is; `auto` finds it in the cluster. Default: auto, if found.",
    ),
    click.option(
        "--step", default="auto", show_default=True, help="Distance of samples; auto widens it with the cluster."
    ),
    click.option(
        "--budget", type=click.IntRange(1), default=60_000_000, show_default=True, help="Samples to read at most."
    ),
    click.option("--parallel", type=click.IntRange(1, 16), default=2, show_default=True, help="Queries at a time."),
    click.option("--watch-for", type=DURATION, help="Collect from the metrics API for so long where nothing is known."),
)


def usage_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, in their order."""
    for option in reversed(_OPTIONS[1:]):
        command = option(command)
    return _OPTIONS[0](prometheus_options(command))


def sources_of(given: Mapping[str, Any], clock: SystemClock) -> Sources:
    """Return where options say that usage is."""
    url = given["prometheus"]
    step = None
    if given["step"] != "auto":
        try:
            step = DURATION.convert(given["step"], None, None)
        except click.BadParameter as error:
            raise InvalidInput(error.message, field="--step") from error
    question = Question(history=given["history"], step=step, budget=given["budget"], parallel=given["parallel"])
    watch = Watch(given["watch_for"]) if given["watch_for"] is not None else None
    if url is None or url == AUTO:
        if stray := given_for_a_url(given):
            raise InvalidInput(
                "is for a --prometheus URL: through the API server nothing is added to a request", field=stray
            )
        return Sources(find_prometheus=True, must_find=url == AUTO, question=question, watch=watch)
    prometheus = prometheus_at(url, given, clock)
    return Sources(prometheus=prometheus, question=question, watch=watch)


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
