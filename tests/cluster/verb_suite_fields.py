"""More of the verb suite: fields that a type does not have, and fields written twice."""

import json

from cluster.verb_suite import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, Raw, case, config, crd, defined, deployment

TWICE = '"replicas":1,"replicas":2'


def text(body: Raw) -> str:
    return json.dumps(body, separators=(",", ":"))


async def send(
    api: Api, method: str, path: str, body: str, *, kind: str = "application/json", **query: str
) -> tuple[int, Raw, str]:
    """Send a text as it is; return the status, the answer and its warning."""
    answer = await api.transport.request(
        method, path, query=query, body=body.encode(), content_type=kind, accept="application/json", timeout=30
    )
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return answer.status, json.loads(answer.body), headers.get("warning", "")


def with_spec(name: str, extra: str) -> str:
    return text(deployment(name)).replace('"spec":{', '"spec":{' + extra + ",", 1)


@case
async def strict_refuses_unknown_fields_and_names_them(api: Api) -> None:
    path = api.path("deployments", group="apps")
    status, body, _ = await send(api, "POST", path, with_spec("web", '"foo":1,"bar":{"a":1}'), fieldValidation="Strict")
    assert (status, body["reason"]) == (400, "BadRequest")
    assert body["message"] == (
        'Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: '
        'unknown field "spec.foo", unknown field "spec.bar"'
    )
    container = deployment("web")
    container["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 1, "Name": "x"}]
    status, body, _ = await send(api, "POST", path, text(container), fieldValidation="Strict")
    assert status == 400
    assert body["message"].endswith('unknown field "spec.template.spec.containers[0].ports[0].Name"')
    assert (await api.call("GET", f"{path}/web"))[0] == 404


@case
async def strict_refuses_fields_that_come_twice_in_the_order_of_the_text(api: Api) -> None:
    path = api.path("deployments", group="apps")
    twice = text(deployment("web")).replace('"replicas":1', f'{TWICE},"foo":1')
    twice = twice.replace('"metadata":{', '"metadata":{"labels":{"a":"1","a":"2"},', 1)
    status, body, _ = await send(api, "POST", path, twice, fieldValidation="Strict")
    assert status == 400
    assert body["message"].endswith(
        'strict decoding error: duplicate field "metadata.labels.a", duplicate field "spec.replicas", '
        'unknown field "spec.foo"'
    )


@case
async def unknown_fields_are_dropped_with_a_warning_unless_said_otherwise(api: Api) -> None:
    path = api.path("deployments", group="apps")
    for name, query in (("a", {}), ("b", {"fieldValidation": "Warn"}), ("c", {"fieldValidation": ""})):
        status, body, warning = await send(api, "POST", path, with_spec(name, '"foo":1'), **query)
        assert (status, warning) == (201, '299 - "unknown field \\"spec.foo\\""')
        assert "foo" not in body["spec"]
        assert "foo" not in (await api.call("GET", f"{path}/{name}"))[1]["spec"]
    status, body, warning = await send(api, "POST", path, with_spec("d", '"foo":1'), fieldValidation="Ignore")
    assert (status, warning, "foo" in body["spec"]) == (201, "", False)
    twice = text(deployment("e")).replace('"replicas":1', TWICE)
    status, body, warning = await send(api, "POST", path, twice)
    assert (status, warning) == (201, '299 - "duplicate field \\"spec.replicas\\""')
    assert body["spec"]["replicas"] == 2


@case
async def metadata_and_the_top_have_known_fields_too(api: Api) -> None:
    path = api.path("configmaps")
    for change, where in (
        ({"spec": {}}, "spec"),
        ({"Data": {}}, "Data"),
        ({"metadata": {"name": "one", "title": "x"}}, "metadata.title"),
    ):
        status, body, _ = await send(api, "POST", path, text({**config("one"), **change}), fieldValidation="Strict")
        assert status == 400
        assert body["message"].endswith(f'strict decoding error: unknown field "{where}"')
    made = await api.make("configmaps", {**config("one", a="1"), "spec": {"a": 1}})
    assert "spec" not in made


@case
async def an_update_is_as_strict_as_a_create(api: Api) -> None:
    await api.make("deployments", deployment("web"), group="apps")
    path = api.path("deployments", "web", group="apps")
    status, body, _ = await send(api, "PUT", path, with_spec("web", '"foo":1'), fieldValidation="Strict")
    assert (status, body["reason"]) == (400, "BadRequest")
    status, body, warning = await send(api, "PUT", path, with_spec("web", '"foo":1'))
    assert (status, warning, "foo" in body["spec"]) == (200, '299 - "unknown field \\"spec.foo\\""', False)
    missing = api.path("deployments", "nope", group="apps")
    assert (await send(api, "PUT", missing, with_spec("nope", '"foo":1'), fieldValidation="Strict"))[0] == 400


@case
async def another_kind_of_field_validation_is_invalid(api: Api) -> None:
    path = api.path("configmaps")
    status, body, _ = await send(api, "POST", path, text(config("one")), fieldValidation="strict")
    assert (status, body["reason"]) == (422, "Invalid")
    assert body["message"] == (
        'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "strict": '
        'supported values: "", "Ignore", "Strict", "Warn"'
    )
    status, body, _ = await send(api, "PATCH", f"{path}/one", "{}", kind=MERGE, fieldValidation="x")
    assert (status, body["details"]["kind"]) == (422, "PatchOptions")


@case
async def a_strict_patch_is_refused_for_what_it_would_make(api: Api) -> None:
    await api.make("deployments", deployment("web"), group="apps")
    path = api.path("deployments", "web", group="apps")
    both = '{"spec":{"replicas":1,"replicas":1,"foo":1}}'
    told = 'strict decoding error: duplicate field "spec.replicas", unknown field "spec.foo"'
    add = '[{"op":"add","path":"/spec/foo","value":1}]'
    for kind, patch, complaint in (
        (MERGE, both, told),
        (STRATEGIC, both, told),
        (JSON_PATCH, add, 'strict decoding error: unknown field "spec.foo"'),
        (JSON_PATCH, '[{"op":"test","path":"/spec/replicas","value":1,"why":1}]', 'json patch unknown field "[0].why"'),
    ):
        status, body, _ = await send(api, "PATCH", path, patch, kind=kind, fieldValidation="Strict")
        assert (status, body["reason"]) == (422, "Invalid")
        assert body["message"].startswith(' "" is invalid: patch: Invalid value: ')
        assert body["message"].endswith(complaint)
        assert body["details"]["causes"][0]["field"] == "patch"
    for kind, patch in ((MERGE, '{"spec":{"foo":1}}'), (STRATEGIC, '{"spec":{"foo":1}}'), (JSON_PATCH, add)):
        status, body, warning = await send(api, "PATCH", path, patch, kind=kind)
        assert (status, warning, "foo" in body["spec"]) == (200, '299 - "unknown field \\"spec.foo\\""', False)


@case
async def applying_takes_no_field_that_it_could_not_own(api: Api) -> None:
    path = api.path("deployments", "web", group="apps")
    for mode in ("Strict", "Warn", "Ignore"):
        status, body, _ = await send(
            api, "PATCH", path, with_spec("web", '"foo":1'), kind=APPLY, fieldManager="me", fieldValidation=mode
        )
        assert status == 500
        assert body["message"] == (
            "failed to create typed patch object (/web; apps/v1, Kind=Deployment): "
            ".spec.foo: field not declared in schema"
        )
    twice = text(deployment("web")).replace('"replicas":1', TWICE)
    status, body, _ = await send(api, "PATCH", path, twice, kind=APPLY, fieldManager="me", fieldValidation="Strict")
    assert (status, body["reason"]) == (400, "BadRequest")
    assert body["message"].endswith('line 1: key "replicas" already set in map')
    status, _, warning = await send(api, "PATCH", path, twice, kind=APPLY, fieldManager="me")
    assert (status, warning) == (201, '299 - "line 1: key \\"replicas\\" already set in map"')


@case
async def yaml_says_in_which_line_a_field_comes_again(api: Api) -> None:
    body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\ndata:\n  a: x\n  a: z\nextra: 1\n"
    path = api.path("configmaps")
    status, refused, _ = await send(api, "POST", path, body, kind="application/yaml", fieldValidation="Strict")
    assert (status, refused["reason"]) == (400, "BadRequest")
    assert refused["message"].endswith(
        'strict decoding error: yaml: unmarshal errors:\n  line 7: key "a" already set in map, unknown field "extra"'
    )
    status, made, _ = await send(api, "POST", path, body, kind="application/yaml")
    assert (status, made["data"], "extra" in made) == (201, {"a": "z"}, False)


@case
async def subresources_have_fields_of_their_own(api: Api) -> None:
    await api.make("deployments", deployment("web"), group="apps")
    path = api.path("deployments", "web", "scale", group="apps")
    scale = {"metadata": {"name": "web", "namespace": api.namespace}, "spec": {"replicas": 0, "foo": 1}}
    body = text({"apiVersion": "autoscaling/v1", "kind": "Scale", **scale})
    status, refused, _ = await send(api, "PUT", path, body, fieldValidation="Strict")
    assert status == 400
    assert refused["message"] == (
        'Scale in version "v1" cannot be handled as a Scale: strict decoding error: unknown field "spec.foo"'
    )
    status, _, warning = await send(api, "PATCH", path, '{"spec":{"replicas":0,"foo":1}}', kind=MERGE)
    assert (status, warning) == (200, '299 - "unknown field \\"spec.foo\\""')
    eviction = '{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"one"},"foo":1}'
    status, refused, _ = await send(
        api, "POST", api.path("pods", "one", "eviction"), eviction, fieldValidation="Strict"
    )
    assert (status, refused["message"].startswith('Eviction in version "v1" cannot be handled')) == (400, True)


@case
async def custom_resources_are_as_strict_as_built_in_ones(api: Api) -> None:
    group = f"{api.namespace}.example.com"
    async with defined(api, crd(group)):
        head = f'{{"apiVersion":"{group}/v1","kind":"Gadget","metadata":{{"name":"one","title":1}},'
        body = head + '"spec":{"size":1,"size":2,"foo":1},"top":1}'
        path = api.path("gadgets", group=group)
        status, refused, _ = await send(api, "POST", path, body, fieldValidation="Strict")
        assert status == 400
        assert refused["message"].endswith(
            'strict decoding error: duplicate field "spec.size", unknown field "metadata.title", '
            'unknown field "spec.foo", unknown field "top"'
        )
        status, made, warning = await send(api, "POST", path, body)
        assert status == 201, made
        assert 'unknown field \\"top\\"' in warning
        assert "foo" not in made["spec"]
        applied = f'{{"apiVersion":"{group}/v1","kind":"Gadget","metadata":{{"name":"one"}},"spec":{{"foo":1}}}}'
        status, refused, _ = await send(api, "PATCH", f"{path}/one", applied, kind=APPLY, fieldManager="me")
        assert (status, refused["message"].endswith(".spec.foo: field not declared in schema")) == (500, True)
