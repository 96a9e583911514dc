"""Access control of the admin address, and the security headers for browsers.

- With tokens, everything except the login form and the page's own files requires one; changes
  require the role operate.
- Other sites' pages get nothing, even without a token: not by a request from their page, and not by
  their own name that resolves to this machine (DNS rebinding).
- Displayed content cannot run: scripts come only from here, and no page can be framed.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from http import HTTPStatus
from ipaddress import ip_address
from time import time
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from attrs import field, frozen
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from window_consumer.admin.answers import PRINCIPAL, ReadingRoute, address_of, error
from window_consumer.admin.login_delay import LoginDelay
from window_consumer.admin.tokens import ANYBODY, NO_TOKENS, Principal, Tokens
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

SESSION_S: Final = 12 * 3600
"""A working day, after which the token is required again."""


_LONGEST_FORM: Final = 4096

_OPEN: Final = ("/login", "/static/")
"""Accessible to everybody: the login form, and the files of the package."""

_SAFE: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Other sites get no referrer. With no-referrer browsers would hide our own form's origin, too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_log = own_logger()


@frozen
class Gate:
    """The rules that every request must pass."""

    tokens: Tokens = NO_TOKENS
    """By name; if empty, everybody who reaches the address may do everything."""
    hosts: frozenset[str] | None = None
    """The allowed host names of this address, in lower case; None for any."""
    any_ip_address: bool = False
    """IP addresses are allowed, too: no foreign page can be served from our own address."""
    port: int = 0
    is_tls: bool = False
    wrong_tokens: LoginDelay = field(factory=LoginDelay, init=False, repr=False, eq=False)
    _secret: bytes = field(factory=lambda: secrets.token_bytes(32), init=False, repr=False)

    @property
    def cookie(self) -> str:
        """Return the name of the session's cookie: browsers share cookies among a host's ports."""
        return f"wc_admin_{self.port}"

    def session(self, name: str) -> str:
        """Return a new session, for a client that has presented the token of that name."""
        until = str(int(time()) + SESSION_S)
        return f"{until}.{name}.{self._signed(until, name)}"

    def principal(self, headers: Headers) -> Principal | None:
        """Return the sender of a request with a token or a session; None if it has neither."""
        if not self.tokens:
            return ANYBODY
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.owner_of(given.strip())
        return self._owner_of_session(cookie_parser(headers.get("cookie", "")).get(self.cookie, ""))

    def owner_of(self, given: str) -> Principal | None:
        """Return the owner of a token; compares with all in constant time."""
        found = [
            Principal(name, each.role)
            for name, each in self.tokens.items()
            if hmac.compare_digest(given.encode(), each.token.encode())
        ]
        return found[0] if found else None

    def is_called_rightly(self, headers: Headers) -> bool:
        """Return whether the request's host name is allowed."""
        if self.hosts is None:
            return True
        host = (_host_of(f"//{headers.get('host', '')}") or "").removesuffix(".")
        return host in self.hosts or (self.any_ip_address and _is_ip_address(host))

    def is_from_elsewhere(self, method: str, headers: Headers) -> bool:
        """Return whether another site's page sent a request."""
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site not in _OWN_SITES  # set by the browser, not by pages
        origin = headers.get("origin")
        if origin is None:
            # Browsers send an origin with every change; programs have no cookies.
            return method not in _SAFE and "cookie" in headers
        try:
            return urlsplit(origin).netloc != headers.get("host", "")
        except ValueError:
            return True

    def _owner_of_session(self, given: str) -> Principal | None:
        until, _, rest = given.partition(".")
        name, _, signed = rest.partition(".")
        if name not in self.tokens:
            return None
        is_ours = hmac.compare_digest(signed.encode(), self._signed(until, name).encode())
        if not (is_ours and until.isdecimal() and int(until) > time()):
            return None
        return Principal(name, self.tokens[name].role)

    def _signed(self, until: str, name: str) -> str:
        text = f"{until}.{name}.{self.tokens[name].token}"
        return hmac.new(self._secret, text.encode(), sha256).hexdigest()


class Guard:
    """ASGI middleware that passes only permitted requests."""

    def __init__(
        self, inner: ASGIApp, gate: Gate, routes: Sequence[BaseRoute], pages: Sequence[BaseRoute]
    ):
        """``pages`` are the routes for people: without a token they redirect to the login form."""
        self._inner = inner
        self._gate = gate
        self._routes = routes
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it to the inner application."""
        if scope["type"] != "http":
            return
        has_begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        try:
            if refusal is not None and _shows_something(refusal, scope):
                await self._gate.wrong_tokens.delay(address_of(scope))
            await (refusal or self._inner)(scope, receive, send_guarded)
        except Exception:
            _log.exception(
                "admin: a request failed; please report this bug",
                extra={"event": LogEvent.ADMIN_REQUEST_FAILED},
            )
            if not has_begun:
                failure = error(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a bug; see the log")
                await failure(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the refusal, None if the request may pass."""
        headers, path, gate = Headers(scope=scope), scope["path"], self._gate
        if not gate.is_called_rightly(headers):
            return error(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this address does not have that name: use the host in admin.listen, or"
                " add this name to admin.hosts",
            )
        is_page = scope["method"] in _SAFE and not path.startswith("/api/")
        if not is_page and gate.is_from_elsewhere(scope["method"], headers):
            return error(HTTPStatus.FORBIDDEN, "another site's page sent this request")
        if path.startswith(_OPEN):
            return None
        principal = gate.principal(headers)
        if principal is not None:
            scope.setdefault("state", {})[PRINCIPAL] = principal
            return self._forbidden(principal, scope)
        if is_page and any(page.matches(scope)[0] is not Match.NONE for page in self._pages):
            return RedirectResponse("../" * (path.count("/") - 1) + "login", HTTPStatus.SEE_OTHER)
        refused = error(
            HTTPStatus.UNAUTHORIZED, "the token is missing or wrong: Authorization: Bearer ..."
        )
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused

    def _forbidden(self, principal: Principal, scope: Scope) -> Response | None:
        if principal.may_operate or self._changes_nothing(scope):
            return None
        why = f"{principal.name} may only read: this needs a token with the role operate"
        return error(HTTPStatus.FORBIDDEN, why)

    def _changes_nothing(self, scope: Scope) -> bool:
        if scope["method"] in _SAFE:
            return True
        full = (each for each in self._routes if each.matches(scope)[0] is Match.FULL)
        return isinstance(next(full, None), ReadingRoute)


def _shows_something(refusal: Response, scope: Scope) -> bool:
    """Return whether a request with a token was refused."""
    return refusal.status_code == HTTPStatus.UNAUTHORIZED and "authorization" in Headers(
        scope=scope
    )


async def log_in(request: Request, gate: Gate) -> Response:
    """Answer the login form: a session for the right token, the form again for a wrong one."""
    form = await _form_of(request)
    principal = gate.owner_of(form.get("token", "")) if gate.tokens else ANYBODY
    if principal is None:
        await gate.wrong_tokens.delay(address_of(request.scope))
        return RedirectResponse("login?wrong", HTTPStatus.SEE_OTHER)
    answer = RedirectResponse("./", HTTPStatus.SEE_OTHER)
    if principal is ANYBODY:
        return answer
    answer.set_cookie(
        gate.cookie,
        gate.session(principal.name),
        max_age=SESSION_S,
        httponly=True,
        samesite="strict",
        secure=gate.is_tls,
    )
    return answer


def log_out(gate: Gate) -> Response:
    """Delete the session in this browser."""
    answer = RedirectResponse("login", HTTPStatus.SEE_OTHER)
    answer.delete_cookie(gate.cookie, httponly=True, samesite="strict", secure=gate.is_tls)
    return answer


async def _form_of(request: Request) -> dict[str, str]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_FORM:
            return {}
    return dict(parse_qsl(body.decode("utf-8", "replace")))


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _is_ip_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
