"""Which webhooks are served, and what passes without a question to the cluster."""

import pytest

from faulty_api import FaultyApi, FaultyTransport
from kubetide.api.objects.admission import AdmissionReview
from kubetide.api.values.codec import decode, encode
from kubetide.clock import SystemClock
from kubetide.errors import DecodeError
from kubetide.kube.client.client import Client
from kubetide.slo.settings import SloSettings
from kubetide.slo.webhook import SloReviews, webhook_server

OURS = {"namespace": "koordinator-system", "name": "slo-controller-config"}


def client() -> Client:
    return Client(FaultyTransport(FaultyApi()), clock=SystemClock())


def review(operation: str, *, new: object = None, old: object = None, **names: str) -> AdmissionReview:
    raw = {"operation": operation, "object": new, "oldObject": old, "uid": "u", **names}
    return decode(encode({"request": raw}), AdmissionReview)


@pytest.mark.parametrize(
    ("gates", "served"),
    [
        pytest.param((), False, id="off-by-default"),
        pytest.param(("ConfigMapValidatingWebhook=false",), False, id="said-to-be-off"),
        pytest.param(("configmapvalidatingwebhook=true",), True, id="on"),
        pytest.param(("WebhookFramework=true", " NodeValidatingWebhook=true"), True, id="one-of-two"),
        pytest.param(("NodeValidatingWebhook=1", "NodeValidatingWebhook=false"), False, id="the-last-word-counts"),
        pytest.param(("NodeValidatingWebhook=true", "WebhookFramework=false"), False, id="all-of-them-off"),
    ],
)
async def test_gates_switch_the_webhooks_on(gates: tuple[str, ...], served: bool) -> None:
    assert (webhook_server(client(), SloSettings(feature_gates=gates)) is not None) is served


@pytest.mark.parametrize(
    ("operation", "names"),
    [
        pytest.param("CREATE", OURS | {"namespace": "default"}, id="another-namespace"),
        pytest.param("CREATE", OURS | {"name": "other"}, id="another-name"),
        pytest.param("DELETE", OURS, id="delete"),
    ],
)
async def test_other_configmaps_and_deletions_pass_unread(operation: str, names: dict[str, str]) -> None:
    answer = await SloReviews(client(), SloSettings()).review_config(review(operation, **names))
    assert answer["response"] == {"uid": "u", "allowed": True}


async def test_an_object_that_is_no_configmap_is_an_error_not_a_pass() -> None:
    with pytest.raises(DecodeError):
        await SloReviews(client(), SloSettings()).review_config(review("CREATE", new={"data": ["no", "map"]}, **OURS))


async def test_a_node_passes_when_it_is_new_unchanged_or_the_configuration_cannot_be_read() -> None:
    reviews = SloReviews(client(), SloSettings())
    old, new = ({"metadata": {"name": "n", "labels": {"pool": pool}}} for pool in ("a", "b"))
    for asked in (
        review("CREATE", new=new),
        review("UPDATE", new=old, old=old),
        review("UPDATE", new=new, old=old),
    ):
        answer = await reviews.review_node(asked)
        assert answer["response"]["allowed"] is True
