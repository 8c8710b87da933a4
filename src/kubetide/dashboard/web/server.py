"""The web server of the dashboard: who asks for what, and in which form it is answered.

    /                                         the current context
    /c/CONTEXT/                               overview
    /c/CONTEXT/workloads[?q=&sort=&desc=&start=&count=]
    /c/CONTEXT/workloads/NAMESPACE/KIND/NAME[/what-if?percentile=&margin=&target=]
    /c/CONTEXT/nodes[/NAME]
    /c/CONTEXT/health
    /c/CONTEXT/live                           server-sent events: a new look at the cluster, a problem, expired
    /login, /logout, /static/FILE, /healthz

Every page also answers as JSON, where `Accept` asks for it or with `?format=json`. Links are relative, so that a proxy
may put any path before them. Nothing here writes to a cluster; the only requests that change anything are login and
logout, and they are refused where another site made them.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import quote, urlsplit

from aiohttp import hdrs, web

from kubetide.api.values.codec import encode
from kubetide.dashboard.web import pages
from kubetide.dashboard.web.answers import Answers, Page, Unknown
from kubetide.dashboard.web.live import follow
from kubetide.dashboard.web.visitors import Session, Visitors
from kubetide.dashboard.web.watching import Expired
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.client.errors import Forbidden, Unauthorized
from kubetide.kube.connections import ConnectionLimits
from kubetide.kube.endpoints import is_loopback
from kubetide.kube.listener import listening

COOKIE = "kubetide-session"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: browsers would then send `Origin: null` with the login form.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_LARGE = 1400
"""Bytes from which on an answer is compressed: less fits one packet anyway."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Dashboard:
    """The routes."""

    def __init__(
        self, visitors: Visitors, answers: Answers, *, prefix: str = "", hosts: frozenset[str] = frozenset()
    ) -> None:
        self._visitors = visitors
        self._answers = answers
        self._prefix = f"/{prefix.strip('/')}" if prefix.strip("/") else ""
        self._hosts = hosts
        """Names that it is called by, beside those of this machine."""

    def application(self) -> web.Application:
        """Return the routes, for serving."""
        app = web.Application(middlewares=[self._guard])
        add = app.router.add_get
        base = self._prefix
        add(f"{base}/", self._home)
        if base:
            add(base, self._home)
        add(f"{base}/healthz", self._healthz)
        add(base + "/static/{file}", self._static)
        add(f"{base}/login", self._login_page)
        app.router.add_post(f"{base}/login", self._login)
        app.router.add_post(f"{base}/logout", self._logout)
        inside = base + "/c/{context}"
        add(f"{inside}/", self._page(self._answers.overview))
        add(f"{inside}/workloads", self._page(self._answers.workloads))
        add(inside + "/workloads/{namespace}/{kind}/{name}", self._page(self._answers.workload))
        add(inside + "/workloads/{namespace}/{kind}/{name}/what-if", self._page(self._answers.what_if))
        add(f"{inside}/nodes", self._page(self._answers.nodes))
        add(inside + "/nodes/{name}", self._page(self._answers.node))
        add(f"{inside}/health", self._page(self._answers.health))
        add(f"{inside}/live", self._live)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer only to names of our own, and give every answer its headers."""
        try:
            if not self._knows(request.host):
                problem = (
                    f"This dashboard is not called {request.host}: start it with --allowed-host to allow the name."
                )
                raise web.HTTPMisdirectedRequest(text=problem)
            if request.method == hdrs.METH_POST and not _own(request):
                raise web.HTTPForbidden(text="Another site made this request.")
            response = await handler(request)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        if not response.prepared:
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
        return response

    def _knows(self, host: str) -> bool:
        if self._visitors.by_token and not self._hosts:
            return True
        name = urlsplit(f"//{host}").hostname or ""
        return name in self._hosts or name == "localhost" or is_loopback(name)

    # -- who asks

    def _session(self, request: web.Request) -> Session:
        if not self._visitors.by_token:
            return self._visitors.of_context(request.match_info["context"])
        session = self._visitors.of_cookie(request.cookies.get(COOKIE, ""))
        if session is None:
            raise Expired("nobody is logged in")
        return session

    async def _home(self, request: web.Request) -> web.StreamResponse:
        if self._visitors.by_token and self._visitors.of_cookie(request.cookies.get(COOKIE, "")) is None:
            return _redirect(f"{self._below(request)}login")
        return _redirect(f"{self._below(request)}c/{quote(self._visitors.current, safe='')}/")

    def _below(self, request: web.Request) -> str:
        """Return where the dashboard begins, relative to what was asked for."""
        inside = request.rel_url.raw_path.removeprefix(self._prefix)
        if not inside:  # the prefix without its slash
            return f"{self._prefix.rsplit('/', 1)[-1]}/"
        return "../" * (inside.count("/") - 1)

    async def _login_page(self, request: web.Request) -> web.StreamResponse:
        if not self._visitors.by_token:
            return _redirect(f"{self._below(request)}./")
        return self._login_form(request, "expired" if "expired" in request.query else "")

    def _login_form(self, request: web.Request, problem: str, status: int = 200) -> web.Response:
        body = pages.render("login.html", root=self._below(request), problem=problem, status=status)
        return web.Response(text=body, content_type="text/html", status=status)

    async def _login(self, request: web.Request) -> web.StreamResponse:
        if not self._visitors.by_token:
            raise web.HTTPNotFound
        form = await request.post()
        token, namespace = str(form.get("token", "")), str(form.get("namespace", "")).strip()
        try:
            cookie = await self._visitors.login(token, namespace)
        except (Unauthorized, InvalidInput):
            return self._login_form(request, "refused", 401)
        except Forbidden:
            return self._login_form(request, "forbidden", 403)
        except KubetideError as error:
            return self._login_form(request, f"The API server does not answer: {error}", 502)
        self._visitors.logout(request.cookies.get(COOKIE, ""))
        response = _redirect("./")
        secure = request.secure or request.headers.get("X-Forwarded-Proto") == "https"
        path = f"{self._prefix}/"
        response.set_cookie(COOKIE, cookie, path=path, httponly=True, samesite="Strict", secure=secure)
        return response

    async def _logout(self, request: web.Request) -> web.StreamResponse:
        self._visitors.logout(request.cookies.get(COOKIE, ""))
        response = _redirect("login")
        response.del_cookie(COOKIE, path=f"{self._prefix}/")
        return response

    # -- what is answered

    def _page(self, answer: Callable[[Session, web.Request], Awaitable[Page]]) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            try:
                session = self._session(request)
                page = await answer(session, request)
            except Expired as error:
                return self._expired(request, error)
            except (Unknown, InvalidInput) as error:
                return self._problem(request, str(error), 404 if isinstance(error, Unknown) else 400)
            except KubetideError as error:
                return self._problem(request, str(error), 502)
            if _wants_json(request):
                return _sized(request, web.Response(body=encode(page.model), content_type="application/json"))
            part = request.query.get("part", "")
            body = pages.render(
                page.parts.get(part, page.template),
                **page.values,
                root=self._below(request),
                here=page.here,
                title=page.title,
                partial=bool(part),
                contexts=() if self._visitors.by_token else self._visitors.contexts,
                context=session.context,
                visitor=session.name,
                by_token=self._visitors.by_token,
                namespace=session.watch.namespace,
                problem=session.watch.problem,
            )
            return _sized(request, web.Response(text=body, content_type="text/html"))

        return handler

    def _expired(self, request: web.Request, error: Exception) -> web.StreamResponse:
        if _wants_json(request):
            return web.json_response({"error": str(error)}, status=401)
        if not self._visitors.by_token:
            return self._problem(request, str(error), 502)
        return self._login_form(request, "expired" if request.cookies.get(COOKIE) else "", 401)

    def _problem(self, request: web.Request, text: str, status: int) -> web.StreamResponse:
        if _wants_json(request):
            return web.json_response({"error": text}, status=status)
        here = request.match_info.get("context", "")
        contexts = [] if self._visitors.by_token else [each for each in self._visitors.contexts if each != here]
        body = pages.render("problem.html", root=self._below(request), text=text, status=status, contexts=contexts)
        return web.Response(text=body, content_type="text/html", status=status)

    async def _live(self, request: web.Request) -> web.StreamResponse:
        try:
            session = self._session(request)
        except (Expired, InvalidInput):
            raise web.HTTPUnauthorized from None
        return await follow(request, session.watch, HEADERS)

    async def _static(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["file"]
        content = pages.static_file(name)
        if content is None:
            raise web.HTTPNotFound
        kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
        response = web.Response(body=content, content_type=kind, charset="utf-8")
        response.headers["Cache-Control"] = "no-cache"
        return _sized(request, response)

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")


@asynccontextmanager
async def serving(
    dashboard: Dashboard, host: str, port: int, *, limits: ConnectionLimits | None = None
) -> AsyncIterator[int]:
    """Serve while the block lasts, and give the port."""
    chosen = limits or ConnectionLimits()
    runner = chosen.runner(dashboard.application(), shutdown_seconds=0.5)
    async with listening(runner, host, port, limits=chosen) as taken:
        yield taken


def _sized(request: web.Request, response: web.Response) -> web.StreamResponse:
    """Return an answer compressed where it is large, and only its absence where the other end has it already."""
    body = response.body if isinstance(response.body, bytes) else b""
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    if request.headers.get(hdrs.IF_NONE_MATCH) == tag:
        return web.Response(status=304, headers={hdrs.ETAG: tag})
    response.headers[hdrs.ETAG] = tag
    response.headers[hdrs.VARY] = "Accept, Accept-Encoding, Cookie"
    if len(body) > _LARGE:
        response.enable_compression()
    return response


def _wants_json(request: web.Request) -> bool:
    if (form := request.query.get("format")) is not None:
        return form == "json"
    return request.headers.get(hdrs.ACCEPT, "").partition(",")[0].partition(";")[0].strip() == "application/json"


def _own(request: web.Request) -> bool:
    """Return whether a request comes from a page of ours; a program that sends no such header is no browser."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get(hdrs.ORIGIN)
    return origin is None or urlsplit(origin).netloc == request.host


def _redirect(where: str) -> web.Response:
    return web.Response(status=303, headers={hdrs.LOCATION: where})
