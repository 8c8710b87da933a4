"""Who sent an HTTP request: a bearer token, a client certificate, or somebody who acts for another."""

from aiohttp import web

from kubetide.embedded.apiserver.auth.rbac import Attributes
from kubetide.embedded.apiserver.rest.requests import ADMIN, User
from kubetide.embedded.apiserver.rest.status import unauthorized
from kubetide.embedded.apiserver.server import ApiServer

PUBLIC = ("/healthz", "/livez", "/readyz", "/version")
_PROBE = User("system:anonymous", ("system:masters",))


def authenticate(http: web.BaseRequest, api: ApiServer, *, anonymous: bool) -> User:
    """Return the user of a request, or refuse it."""
    user = _known(http, api)
    if user is None:
        if anonymous:
            user = ADMIN
        elif http.path in PUBLIC and "Authorization" not in http.headers:
            return _PROBE
        else:
            raise unauthorized()
    return _acting_for(http, api, user)


def _known(http: web.BaseRequest, api: ApiServer) -> User | None:
    scheme, _, token = http.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return api.tokens.user_of(token.strip())
    return _certified(http)


def _certified(http: web.BaseRequest) -> User | None:
    """Return the user that a verified client certificate names: CN is the name, each O a group."""
    session = http.transport.get_extra_info("ssl_object") if http.transport is not None else None
    certificate = session.getpeercert() if session is not None else None
    if not certificate:
        return None
    names = [pair for relative in certificate.get("subject", ()) for pair in relative]
    common = next((value for key, value in names if key == "commonName"), "")
    groups = tuple(value for key, value in names if key == "organizationName")
    return User(common, (*groups, "system:authenticated")) if common else None


def _acting_for(http: web.BaseRequest, api: ApiServer, user: User) -> User:
    """Return the user of the impersonation headers, if the real one may act for others."""
    name = http.headers.get("Impersonate-User", "")
    groups = http.headers.getall("Impersonate-Group", [])
    if not name and not groups:
        return user
    for kind, wanted in (("users", name), *(("groups", group) for group in groups)):
        api.authorizer.check(user, Attributes(verb="impersonate", resource=kind, name=wanted))
    implied: tuple[str, ...] = ("system:authenticated",)
    if name.startswith("system:serviceaccount:") and not groups:
        namespace = name.split(":")[2]
        implied = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(name, (*groups, *(group for group in implied if group not in groups)))
