"""JSON that is nested deeper than Python recurses is refused as any other mistake."""

import msgspec
import pytest

from kubetide.api.objects.sample_frames import decode_frame
from kubetide.slo.colocation.core.mutate import noted
from kubetide.stats.prometheus_ranges import PrometheusAnswer, read_any

DEEP = 20_000


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"status": "success", "warnings": ' + b"[" * DEEP, id="open"),
        pytest.param(b'{"status": "success", "warnings": ' + b"[" * DEEP + b"]" * DEEP + b"}", id="closed"),
    ],
)
def test_an_answer_of_prometheus(body: bytes) -> None:
    with pytest.raises(PrometheusAnswer):
        read_any(body)


def test_a_frame_of_samples() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_frame(b"\x81\xa5later" + b"\x91" * DEEP + b"\x00")


def test_a_note_on_a_pod() -> None:
    assert noted("[" * DEEP) == ()
