"""Protobuf bodies: built here byte by byte, read as the objects they stand for."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.embedded.protobuf import decode_protobuf
from kubetide.embedded.status import Refusal


def varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def body(api_version: str, kind: str, *fields: bytes) -> bytes:
    envelope = field(1, field(1, api_version) + field(2, kind)) + field(2, b"".join(fields))
    return b"k8s\x00" + envelope


METADATA = field(1, field(1, "web") + field(2, "") + field(11, field(1, "app") + field(2, "web")))


def test_a_deployment_becomes_an_object() -> None:
    container = field(1, "main") + field(2, "example.com/app:1") + field(6, field(3, 80) + field(4, "TCP"))
    resources = field(8, field(2, field(1, "cpu") + field(2, field(1, "100m"))))
    template = field(3, field(2, field(2, container + resources)))
    rolling = field(4, field(1, "RollingUpdate") + field(2, field(1, field(1, 1) + field(2, 0) + field(3, "25%"))))
    selector = field(2, field(1, field(1, "app") + field(2, "web")))
    spec = field(2, field(1, 0) + selector + template + rolling + field(7, 0))
    assert decode_protobuf(body("apps/v1", "Deployment", METADATA, spec, field(3, b""))) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "example.com/app:1",
                            "ports": [{"containerPort": 80, "protocol": "TCP"}],
                            "resources": {"requests": {"cpu": "100m"}},
                        }
                    ]
                }
            },
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
        },
    }


def test_bytes_times_and_versions() -> None:
    secret = decode_protobuf(body("v1", "Secret", METADATA, field(2, field(1, "p") + field(2, b"q"))))
    assert secret["data"] == {"p": "cQ=="}
    lease = decode_protobuf(
        body("coordination.k8s.io/v1", "Lease", field(2, field(4, field(1, 1_767_225_600) + field(2, 5000))))
    )
    assert lease["spec"] == {"renewTime": "2026-01-01T00:00:00.000005Z"}
    cpu = field(1, "Resource") + field(4, field(1, "cpu") + field(2, field(1, "Utilization") + field(4, 60)))
    modern = decode_protobuf(body("autoscaling/v2", "HorizontalPodAutoscaler", field(2, field(4, cpu))))
    assert modern["spec"]["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 60}
    older = decode_protobuf(body("autoscaling/v1", "HorizontalPodAutoscaler", field(2, field(4, 60))))
    assert older["spec"] == {"targetCPUUtilizationPercentage": 60}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"{}", 400, id="json"),
        pytest.param(b"k8s\x00\x0a", 400, id="cut-off"),
        pytest.param(body("v1", "Gizmo"), 415, id="unknown-kind"),
        pytest.param(body("v1", "ConfigMap", field(99, "x")), 400, id="unknown-field"),
        pytest.param(body("v1", "ConfigMap", field(1, 5)), 400, id="number-for-a-message"),
        pytest.param(body("v1", "ConfigMap", field(1, field(1, b"\xff"))), 400, id="bad-utf8"),
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes, code: int) -> None:
    with pytest.raises(Refusal) as refused:
        decode_protobuf(data)
    assert refused.value.code == code


@given(st.binary(max_size=200), st.sampled_from(["Pod", "Deployment", "Lease", "ConfigMap", "Event"]))
def test_no_bytes_break_the_reader(noise: bytes, kind: str) -> None:
    with contextlib.suppress(Refusal):
        assert decode_protobuf(body("v1", kind, noise))["kind"] == kind
