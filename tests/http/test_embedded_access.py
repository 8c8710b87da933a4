"""Who gets in over HTTPS, and what they may do: tokens, certificates, service accounts, acting for others."""

import json
from typing import Any

import aiohttp

from embedded_server import Running, running
from kubetide.clock import SystemClock
from kubetide.kube.client.certificates import issue
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.tls import Certificate, Pem

Raw = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"


async def call(transport: HttpTransport, method: str, path: str, body: Raw | None = None) -> tuple[int, Raw]:
    answer = await transport.request(method, path, body=json.dumps(body).encode() if body is not None else None)
    return answer.status, json.loads(answer.body)


async def robot_token(server: Running, admin: HttpTransport) -> str:
    account = {"metadata": {"name": "robot"}}
    assert (await call(admin, "POST", "/api/v1/namespaces/default/serviceaccounts", account))[0] == 201
    status, made = await call(admin, "POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", {"spec": {}})
    assert status == 201
    return str(made["status"]["token"])


async def test_nobody_gets_in_without_a_name() -> None:
    async with running() as server:
        for token in ("", "wrong", "a.b.c"):
            transport = server.transport(token)
            status, body = await call(transport, "GET", PODS)
            assert (status, body["reason"]) == (401, "Unauthorized")
            await transport.close()


async def test_a_service_account_may_do_what_its_role_says_and_no_more() -> None:
    async with running() as server:
        admin = server.transport()
        robot = server.transport(await robot_token(server, admin))
        status, body = await call(robot, "GET", PODS)
        assert (status, body["reason"]) == (403, "Forbidden")
        assert 'User "system:serviceaccount:default:robot" cannot list resource "pods"' in body["message"]
        role = {
            "metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
        }
        binding = {
            "metadata": {"name": "reader"},
            "roleRef": {"kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
        }
        assert (await call(admin, "POST", f"{RBAC}/roles", role))[0] == 201
        assert (await call(admin, "POST", f"{RBAC}/rolebindings", binding))[0] == 201
        assert (await call(robot, "GET", PODS))[0] == 200
        assert (await call(robot, "GET", "/api/v1/namespaces/kube-system/pods"))[0] == 403
        assert (await call(robot, "POST", PODS, {}))[0] == 403
        assert (await call(robot, "GET", "/apis"))[0] == 200
        await robot.close()
        await admin.close()


async def test_a_token_dies_with_its_service_account() -> None:
    async with running() as server:
        admin = server.transport()
        robot = server.transport(await robot_token(server, admin))
        assert (await call(robot, "GET", PODS))[0] == 403
        await call(admin, "DELETE", "/api/v1/namespaces/default/serviceaccounts/robot")
        assert (await call(robot, "GET", PODS))[0] == 401
        await robot.close()
        await admin.close()


async def test_a_client_certificate_names_user_and_groups() -> None:
    async with running() as server:
        now = SystemClock().now()
        for groups, expected in ((("system:masters",), 200), (("nobody",), 403)):
            pair = issue(server.identity.ca, "ann", now=now, groups=groups, client=True)
            certificate = Certificate(certificate=Pem(data=pair.certificate), key=Pem(data=pair.key))
            transport = server.transport(certificate=certificate)
            assert (await call(transport, "GET", PODS))[0] == expected
            await transport.close()


async def test_probes_need_no_credentials_and_see_nothing_else() -> None:
    async with running() as server, aiohttp.ClientSession() as session:
        for path, expected in (("/healthz", 200), ("/readyz", 200), ("/version", 200), ("/api", 401), (PODS, 401)):
            async with session.get(server.serving.url + path, ssl=False) as answer:
                assert answer.status == expected, path


async def test_review_objects_answer_who_may_do_what() -> None:
    async with running() as server:
        admin = server.transport()
        review = {"spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        status, body = await call(admin, "POST", path, review)
        assert (status, body["status"]["allowed"]) == (201, True)
        robot = server.transport(await robot_token(server, admin))
        status, body = await call(robot, "POST", path, review)
        assert (status, body["status"]["allowed"]) == (201, False)
        token = {"spec": {"token": "nonsense"}}
        _, body = await call(admin, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", token)
        assert body["status"]["authenticated"] is False
        await robot.close()
        await admin.close()
