"""The manifests of the SLO controller's webhook."""

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kubetide.cli.manifests import command
from kubetide.cli.run import read_flags
from kubetide.config import load
from kubetide.install.objects import COMPONENTS, manifests
from kubetide.install.slo_webhook import make_slo_webhook
from kubetide.slo.settings import SloSettings
from kubetide.slo.webhook import CONFIG_GATE, CONFIG_PATH, NODE_GATE, NODE_PATH

NOW = datetime(2026, 1, 5, tzinfo=UTC)
WEBHOOK = make_slo_webhook("shop", now=NOW)


@pytest.fixture
def objects() -> dict[tuple[str, str], dict[str, Any]]:
    made = manifests(("slo",), namespace="shop", image="x", slo_webhook=WEBHOOK)
    return {(each["kind"], each["metadata"]["name"]): each for each in made}


def test_nothing_of_it_is_there_unless_asked_for() -> None:
    for each in manifests(COMPONENTS, namespace="shop", image="x"):
        assert each["kind"] not in ("ValidatingWebhookConfiguration", "Secret")
        assert "webhook-cert-dir" not in str(each)


def test_the_registration_leads_to_the_controller(objects: dict[tuple[str, str], dict[str, Any]]) -> None:
    hooks = objects["ValidatingWebhookConfiguration", "kubetide-slo"]["webhooks"]
    references = [hook["clientConfig"]["service"] for hook in hooks]
    assert [each["path"] for each in references] == [CONFIG_PATH, NODE_PATH]
    assert {(each["namespace"], each["name"], each["port"]) for each in references} == {
        ("shop", "kubetide-slo-webhook", 443)
    }
    service = objects["Service", "kubetide-slo-webhook"]["spec"]
    template = objects["Deployment", "kubetide-slo"]["spec"]["template"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    (port,) = service["ports"]
    assert port["targetPort"] in {each["containerPort"] for each in container["ports"]}


def test_the_controller_is_told_to_serve_it(objects: dict[tuple[str, str], dict[str, Any]]) -> None:
    spec = objects["Deployment", "kubetide-slo"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    component, *flags = container["args"][1:]
    told = load(SloSettings, flags=read_flags((component,), tuple(flags)).by_section["slo"])
    assert told.gate(CONFIG_GATE)
    assert told.gate(NODE_GATE)
    (mount,) = (each for each in container["volumeMounts"] if each["mountPath"] == told.webhook_cert_dir)
    (volume,) = (each for each in spec["volumes"] if each["name"] == mount["name"])
    secret = objects["Secret", volume["secret"]["secretName"]]
    assert set(secret["data"]) == {"tls.crt", "tls.key"}


def test_nodes_and_namespaces_are_not_held_up(objects: dict[tuple[str, str], dict[str, Any]]) -> None:
    config, nodes = objects["ValidatingWebhookConfiguration", "kubetide-slo"]["webhooks"]
    assert (config["failurePolicy"], nodes["failurePolicy"]) == ("Fail", "Ignore")
    assert all("DELETE" not in rule["operations"] for hook in (config, nodes) for rule in hook["rules"])
    assert config["namespaceSelector"]["matchExpressions"][0]["values"] == ["koordinator-system"]


def test_the_command_prints_it_on_request() -> None:
    printed = CliRunner().invoke(command, ["slo", "--slo-webhook", "--no-crds"])
    assert printed.exit_code == 0, printed.output
    kinds = [each["kind"] for each in yaml.safe_load_all(printed.output)]
    assert kinds[-3:] == ["Secret", "Service", "ValidatingWebhookConfiguration"]
    refused = CliRunner().invoke(command, ["hpa", "--slo-webhook"])
    assert refused.exit_code == 2
    assert "about the component slo" in refused.output
