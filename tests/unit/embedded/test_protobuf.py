"""Protobuf bodies: built here byte by byte, read as the objects they stand for."""

import pytest

from kubetide.embedded.apiserver.protobuf.reader import MAGIC, MEDIA_TYPE, decode_protobuf
from kubetide.embedded.apiserver.rest.status import StatusError
from protobuf_bodies import body, field, varint

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
        "status": {},
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


def test_an_event_is_read_by_the_table_of_its_group() -> None:
    series = field(3, field(1, 3) + field(2, field(1, -1) + field(2, 999_999_000)))
    note = decode_protobuf(body("events.k8s.io/v1", "Event", series, field(10, "restarted"), field(15, 0)))
    assert note == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "series": {"count": 3, "lastObservedTime": "1969-12-31T23:59:59.999999Z"},
        "note": "restarted",
    }


def test_a_status_is_read_whole_and_zeros_are_kept_where_json_has_them() -> None:
    replica_set = decode_protobuf(body("apps/v1", "ReplicaSet", field(3, field(1, 0) + field(3, 0))))
    # Always there in JSON: how many replicas; left out at zero: the observed generation.
    assert replica_set["status"] == {"replicas": 0}
    condition = field(1, "ScalingActive") + field(2, "True") + field(3, field(1, 60)) + field(4, "ValidMetricFound")
    current = field(1, "Resource") + field(4, field(1, "cpu") + field(2, field(3, 71)))
    status = field(3, field(1, 4) + field(3, 2) + field(4, 5) + field(5, current) + field(6, condition))
    assert decode_protobuf(body("autoscaling/v2", "HorizontalPodAutoscaler", status))["status"] == {
        "observedGeneration": 4,
        "currentReplicas": 2,
        "desiredReplicas": 5,
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 71}}}],
        "conditions": [
            {
                "type": "ScalingActive",
                "status": "True",
                "lastTransitionTime": "1970-01-01T00:01:00Z",
                "reason": "ValidMetricFound",
            }
        ],
    }


def test_a_schema_may_be_a_schema_or_something_simpler() -> None:
    text = field(5, "string")
    schema = (
        field(24, field(2, text) + field(2, b""))
        + field(29, field(1, "name") + field(2, text + field(8, field(1, '"me"')) + field(20, field(1, "null"))))
        + field(30, field(1, 0))
        + field(32, field(1, "a") + field(2, field(2, "b")))
        + field(33, field(1, 1) + field(2, text))
        + field(9, 1.5)
    )
    version = field(7, field(1, "v1") + field(2, 0) + field(4, field(1, schema)))
    decoded = decode_protobuf(body("apiextensions.k8s.io/v1", "CustomResourceDefinition", field(2, version)))
    assert decoded["spec"]["versions"] == [
        {
            "name": "v1",
            "served": False,
            "schema": {
                "openAPIV3Schema": {
                    "items": [{"type": "string"}, {}],
                    "properties": {"name": {"type": "string", "default": "me", "enum": [None]}},
                    "additionalProperties": False,
                    "dependencies": {"a": ["b"]},
                    "additionalItems": {"type": "string"},
                    "maximum": 1.5,
                }
            },
        }
    ]


@pytest.mark.parametrize("api_version", ["v1", "apps/v1", "meta.k8s.io/v1"])
def test_how_to_delete_is_said_in_any_version(api_version: str) -> None:
    options = decode_protobuf(
        body(api_version, "DeleteOptions", field(1, 0), field(2, field(1, "abc")), field(5, "All"))
    )
    assert options == {
        "apiVersion": api_version,
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "abc"},
        "dryRun": ["All"],
    }


def test_numbers_of_a_list_may_be_packed() -> None:
    rule = field(1, "Ignore") + field(2, field(2, "In") + field(3, varint(1) + varint(300)) + field(3, 7))
    job = decode_protobuf(body("batch/v1", "Job", field(2, field(11, field(1, rule)))))
    assert job["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [1, 300, 7]


TYPE = field(1, field(1, "v1") + field(2, "ConfigMap"))


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        pytest.param(b"{}", 400, "not a Kubernetes protobuf", id="json"),
        pytest.param(b"k8s\x00\x0a", 400, "too early", id="cut-off"),
        pytest.param(body("v1", "Gizmo"), 415, "'v1' 'Gizmo'", id="unknown-kind"),
        pytest.param(body("v2", "ConfigMap"), 415, "'v2' 'ConfigMap'", id="unknown-version"),
        pytest.param(body("v1", "PodSpec"), 415, "'v1' 'PodSpec'", id="a-part-of-an-object"),
        pytest.param(body("authentication.k8s.io/v1", "ExtraValue"), 415, "'ExtraValue'", id="a-list"),
        pytest.param(body("v1", "List"), 415, "'v1' 'List'", id="a-list-of-nothing"),
        pytest.param(body("", ""), 415, "does not read", id="no-kind"),
        pytest.param(body("v1", "ConfigMap", field(99, "x")), 415, "field 99 of ConfigMap", id="unknown-field"),
        pytest.param(body("v1", "ConfigMap", field(99, 0)), 415, "field 99 of ConfigMap", id="unknown-zero"),
        pytest.param(body("v1", "ConfigMap", METADATA, METADATA), 400, "twice", id="metadata-twice"),
        pytest.param(MAGIC + TYPE + field(3, "gzip"), 415, "gzip", id="compressed"),
        pytest.param(MAGIC + TYPE + field(4, "application/json"), 415, "application/json", id="json-inside"),
        pytest.param(MAGIC + TYPE + field(9, "x"), 415, "field 9 of Unknown", id="unknown-field-of-the-envelope"),
        pytest.param(body("v1", "ConfigMap", field(1, 5)), 400, "a number where", id="number-for-a-message"),
        pytest.param(body("v1", "ConfigMap", field(4, "yes")), 400, "a whole number", id="text-for-a-number"),
        pytest.param(body("v1", "ConfigMap", field(1, field(1, b"\xff"))), 400, "UTF-8", id="bad-utf8"),
        pytest.param(body("v1", "ConfigMap", varint(1 << 3 | 5) + b"1234"), 400, "unknown form 5", id="four-bytes"),
        pytest.param(
            body("v1", "Pod", field(2, field(32, field(1, "cpu") + field(2, field(2, "x"))))),
            415,
            "field 2 of Quantity",
            id="unknown-field-of-a-quantity",
        ),
        pytest.param(
            body("v1", "Event", field(6, field(1, 2**60))), 400, "out of range", id="a-time-that-no-calendar-has"
        ),
        pytest.param(
            body("apps/v1", "ControllerRevision", field(2, field(1, "{"))), 400, "not JSON", id="broken-json-inside"
        ),
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes, code: int, says: str) -> None:
    with pytest.raises(StatusError, match=says) as refused:
        decode_protobuf(data)
    assert refused.value.code == code


def test_a_number_that_is_not_finite_is_refused() -> None:
    schema = field(4, field(1, field(9, float("inf"))))
    with pytest.raises(StatusError, match="finite") as refused:
        decode_protobuf(body("apiextensions.k8s.io/v1", "CustomResourceDefinition", field(2, field(7, schema))))
    assert refused.value.code == 400


def test_a_schema_inside_itself_a_thousand_times_is_refused() -> None:
    schema = b""
    for _ in range(1000):
        schema = field(28, schema)
    version = field(7, field(4, field(1, schema)))
    with pytest.raises(StatusError, match="nested too deeply"):
        decode_protobuf(body("apiextensions.k8s.io/v1", "CustomResourceDefinition", field(2, version)))


def test_the_media_type_may_be_said_inside_too() -> None:
    assert decode_protobuf(MAGIC + TYPE + field(4, MEDIA_TYPE))["kind"] == "ConfigMap"
