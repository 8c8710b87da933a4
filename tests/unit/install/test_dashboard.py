"""The dashboard in a cluster may do nothing by itself."""

from kubetide.install.dashboard import PORT, dashboard_manifests


def test_the_dashboard_has_no_role_and_asks_every_visitor_for_a_token() -> None:
    objects = dashboard_manifests(namespace="tide", image="i")
    assert [each["kind"] for each in objects] == ["ServiceAccount", "Deployment", "Service"]
    (container,) = objects[1]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:3] == ["dashboard", "--auth", "token"]
    assert container["securityContext"]["runAsNonRoot"]
    assert container["ports"][0]["containerPort"] == PORT
    assert objects[2]["spec"]["selector"] == objects[1]["spec"]["selector"]["matchLabels"]
