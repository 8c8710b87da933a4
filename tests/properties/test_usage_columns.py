"""Usage handed over as columns says what the same usage says as JSON."""

import gc
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.objects.metrics import PodMetrics, UsagePages
from kubetide.api.values.codec import decode
from kubetide.api.values.selectors import parse_selector
from kubetide.embedded.apiserver.rest.strategy import timestamp
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.metrics_pages import Scraped, Watched, pages_of, template
from kubetide.hpa.core.quick.filing import NamespaceSamples
from kubetide.kube.client.decoding import decode_page
from kubetide.kube.client.transport import DocumentResponse
from kubetide.testing.builders import make_deployment
from simulated.cluster import run

PATH = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
LABELS = (None, {"app": "web"}, {"app": "web", "tier": "100%"}, {"app": 'quo"ted'})

pods = st.lists(
    st.tuples(
        st.sampled_from(["default", "shop"]),
        st.sampled_from(LABELS),
        st.lists(st.tuples(st.integers(0, 2**44), st.integers(0, 2**36)), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=8,
)
moments = st.integers(0, 10**9).map(lambda micros: datetime(2026, 1, 5, tzinfo=UTC) + timedelta(microseconds=micros))


def scraped(drawn: list[tuple[str, dict[str, str] | None, list[tuple[int, int]]]], at: datetime) -> Scraped:
    """Return a scrape of pods whose containers have rows in the order in which they are drawn."""
    watched: list[Watched] = []
    numbers: list[tuple[int, int]] = []
    for number, (namespace, labels, containers) in enumerate(drawn):
        metadata = {"name": f"pod-{number}", "namespace": namespace, **({"labels": labels} if labels else {})}
        rows = tuple((f"id-{len(numbers) + index}", len(numbers) + index) for index in range(len(containers)))
        names = tuple(f"c{index}" for index in range(len(containers)))
        text = template(metadata, names)
        watched.append(Watched(f"uid-{number}", namespace, f"pod-{number}", labels, text, rows, names))
        numbers += containers
    watched.sort(key=lambda pod: (pod.namespace, pod.name))
    stamp = f'"timestamp":"{timestamp(at)}","window":"15s"'.encode()
    return Scraped(at=at, window="15s", stamp=stamp, numbers=np.array(numbers).T, pages=pages_of(watched))


@settings(max_examples=200, deadline=None)
@given(pods, moments)
def test_columns_say_what_the_items_say(
    drawn: list[tuple[str, dict[str, str] | None, list[tuple[int, int]]]], at: datetime
) -> None:
    found = scraped(drawn, at)
    for namespace in found.pages:
        columns = found.columns(namespace)
        items = decode(found.items(namespace), list[PodMetrics])
        by_column, by_item = NamespaceSamples(columns), NamespaceSamples(items)
        assert by_column.filing.names == by_item.filing.names == [item.metadata.name for item in items]
        assert by_column.filing.labels == by_item.filing.labels
        assert by_column.span() == by_item.span()
        for resource in ("cpu", "memory", "ephemeral-storage"):
            assert by_column.millis(resource) == by_item.millis(resource)
        selector = parse_selector("app=web")
        assert by_column.select(selector, ["pod-0"]) == by_item.select(selector, ["pod-0"])
        assert len(by_column) == len(items)


def test_the_filing_of_a_page_is_kept_from_scrape_to_scrape() -> None:
    at = datetime(2026, 1, 5, tzinfo=UTC)
    first = scraped([("default", {"app": "web"}, [(1, 1)])], at)
    second = Scraped(at=at, window="15s", stamp=b"", numbers=first.numbers + 1, pages=first.pages)
    filing = NamespaceSamples(first.columns("default")).filing
    assert NamespaceSamples(second.columns("default"), filing).filing is filing
    other = scraped([("default", {"app": "other"}, [(1, 1)])], at)
    assert NamespaceSamples(other.columns("default"), filing).filing is not filing


def test_columns_go_with_the_last_who_reads_them() -> None:
    gc.collect()
    gc.disable()
    try:
        columns = scraped([("default", None, [(1, 1)])], datetime(2026, 1, 5, tzinfo=UTC)).columns("default")
        assert columns.millis("cpu") == [1]
        assert columns.items()
        del columns
        assert gc.collect() == 0  # a collection comes once in a simulated day
    finally:
        gc.enable()


@pytest.mark.parametrize("gaps", [0.0, 0.5])
def test_a_transport_of_the_same_process_brings_both(gaps: float) -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.metrics.gaps = gaps
        await cluster.apply(make_deployment("web", replicas=6, cpu="500m", memory="64Mi"))
        await cluster.run_for(timedelta(minutes=2))
        response = await cluster.transport().request("GET", PATH)
        assert isinstance(response, DocumentResponse)
        assert isinstance(response.document, UsagePages)
        listed = await cluster.transport().request("GET", PATH, query={"labelSelector": "app=web"})
        _, expected, _ = await decode_page(listed.body, PodMetrics)
        _, items, _ = await decode_page(response.body, PodMetrics)
        samples = NamespaceSamples(response.document["default"])
        assert 0 < len(items) <= 6
        assert items == expected == samples.select(parse_selector("app=web"), ())
        assert samples.millis("cpu") == NamespaceSamples(items).millis("cpu")
        everything = await cluster.transport().request("GET", "/apis/metrics.k8s.io/v1beta1/pods")
        assert (await decode_page(everything.body, PodMetrics))[1] == items

    run(main, nodes=2)
