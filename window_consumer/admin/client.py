"""The client of a worker's admin address, for ``top`` and ``doctor``."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from attrs import field, frozen

from window_consumer.model.errors import RunError, UsageError
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot, from_json

DEFAULT_PORT: Final = 8090
WINDOWS: Final = "/api/windows"
DEADLINE_S: Final = 3.0
"""A worker takes its snapshots within a second."""

_COMMAND_DEADLINE_S: Final = 20.0
"""A rebalancing worker answers late, and waits some seconds for a call or an ack."""

_LARGEST: Final = 64 * 2**20
"""A snapshot of 1,000 full windows has about 60 MB; a larger answer is not a worker's."""


NOT_A_WORKER: Final = "it does not answer like a worker"

_ATTEMPTS: Final = 3
"""If a replica is later still, the others have obeyed; repeating the command changes nothing."""


class AskError(RunError):
    """An admin address does not answer like a worker; the message gives the reason on one line."""

    code = "WC118"


@frozen
class AdminAddress:
    """The HTTP or HTTPS address of a worker."""

    host: str
    port: int
    is_tls: bool = False

    @classmethod
    def parse(cls, text: str) -> AdminAddress:
        """Parse a URL or ``host:port``; raise UsageError."""
        full = text if "://" in text else f"http://{text}"
        try:
            url = urlsplit(full)
            port = url.port
        except ValueError as error:
            raise _no_address(text, str(error)) from error
        if url.scheme not in {"http", "https"}:
            raise _no_address(text, "it must start with http:// or https://")
        if not url.hostname or not url.hostname.isprintable() or " " in url.hostname:
            raise _no_address(text, "it names no host")
        if _has_more(url):
            raise _no_address(text, "only a host and a port are allowed")
        if port is None:
            port = DEFAULT_PORT if full != text else {"http": 80, "https": 443}[url.scheme]
        return cls(url.hostname, port, url.scheme == "https")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


def _has_more(url: SplitResult) -> bool:
    return bool(url.path.strip("/") or url.query or url.fragment or "@" in url.netloc)


def _no_address(text: str, why: str) -> UsageError:
    return UsageError(
        f"{text!r} is not a worker's address: {why}; write it like http://127.0.0.1:8090"
    )


@frozen
class Access:
    """The credentials and trust settings of requests."""

    token: str | None = field(default=None, repr=False)
    authority: Path | None = None
    """The trusted certificates; None for the machine's."""
    any_name: bool = False
    """Accept a certificate for another name: the address was not chosen by a person."""

    def headers(self) -> Mapping[str, str]:
        """Return the headers of a request; raise UsageError for an invalid token."""
        if self.token is None:
            return {}
        if not (self.token.isascii() and self.token.isprintable()):
            raise UsageError("the token has characters that an HTTP header cannot carry")
        return {"Authorization": f"Bearer {self.token}"}

    def context(self) -> ssl.SSLContext:
        """Return the TLS context; raise UsageError for a file without certificates."""
        try:
            context = ssl.create_default_context(cafile=self.authority)
        except OSError as error:
            raise UsageError(f"{self.authority}: it has no readable certificates: {error}") from (
                error
            )
        context.check_hostname = not self.any_name
        return context


@frozen
class AdminAnswer:
    """The answer of an address."""

    workers: tuple[WorkerSnapshot, ...]
    answer: Mapping[str, Any] = field(repr=False)
    """The unparsed answer, for JSON output."""
    missing: tuple[str, ...] = ()
    """The processes behind this address that did not answer in time."""


def ask(
    address: AdminAddress,
    access: Access,
    timeout_s: float = DEADLINE_S,
    *,
    stacks: bool = False,
    history: bool = False,
) -> AdminAnswer:
    """Fetch all windows; raise AskError without an answer or with one that is not a worker's.

    Follows no redirects and uses no proxy: the token goes to this address alone.
    """
    wanted = [name for name, want in (("stacks=1", stacks), ("history=1", history)) if want]
    path = f"{WINDOWS}?{'&'.join(wanted)}" if wanted else WINDOWS
    status, text = fetch(address, path, access, timeout_s)
    if status != HTTPStatus.OK:
        refusal = _refusal(status, with_token=access.token is not None)
        raise AskError(f"{address}: {_own_words(status, text) or refusal}")
    return _read(address, text)


def command(address: AdminAddress, path: str, access: Access) -> tuple[int, Any]:
    """Send a command to a worker; return the status of the answer, and its fields.

    Raises AskError without an answer or with one that is not a worker's.
    """
    status, text = fetch(address, path, access, _COMMAND_DEADLINE_S, "POST")
    if status == HTTPStatus.UNAUTHORIZED:
        refusal = _refusal(status, with_token=access.token is not None)
        raise AskError(f"{address}: {refusal}")
    try:
        answer = json.loads(text)
        if status == HTTPStatus.FORBIDDEN:
            raise AskError(f"{address}: {answer['error']}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise AskError(f"{address}: {NOT_A_WORKER}") from error
    return status, answer


def command_worker(
    worker: str, path: str, address: AdminAddress, access: Access, reason: str = ""
) -> None:
    """Send a repeatable command to a worker in all replicas.

    ``path`` follows the worker's name. Raises RunError with the reason of a refusal.
    """
    query = f"?{urlencode({'reason': reason})}" if reason else ""
    for _ in range(_ATTEMPTS):
        status, answer = command(address, f"{worker_path(worker)}/{path}{query}", access)
        if status != HTTPStatus.GATEWAY_TIMEOUT:
            break
    if status != HTTPStatus.OK:
        raise RunError(f"{worker}: {refusal_in(answer)}")


def worker_path(worker: str) -> str:
    """Return where an address has its commands for a worker."""
    return f"/api/workers/{quote(worker, safe='')}"


def refusal_in(answer: Any) -> str:
    """Return why a worker refuses a command."""
    why = answer.get("error") if isinstance(answer, dict) else None
    return str(why or NOT_A_WORKER)


def fetch(
    address: AdminAddress,
    path: str,
    access: Access,
    timeout_s: float = DEADLINE_S,
    method: str = "GET",
) -> tuple[int, bytes]:
    """Return status and body of a response; raise AskError if there is none."""
    headers = access.headers()
    connection: http.client.HTTPConnection
    if address.is_tls:
        connection = http.client.HTTPSConnection(
            address.host, address.port, timeout=timeout_s, context=access.context()
        )
    else:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        text = response.read(_LARGEST)
    except (OSError, http.client.HTTPException) as error:
        raise AskError(f"{address}: {_why(error, timeout_s)}") from error
    finally:
        connection.close()
    return response.status, text


def _why(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "verify_message", "") or error.reason or "it failed"
        return f"TLS: {reason}; --ca names the certificates to trust"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there: is the worker running, with `admin: {listen: ...}`?"
    if isinstance(error, OSError):
        return f"not reached: {error.strerror or error}"
    return "the server there does not speak HTTP"


def _refusal(status: int, *, with_token: bool) -> str:
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        given = "the token is wrong" if with_token else "a token is needed"
        return f"{given}: give it with --token or WINDOW_CONSUMER_TOKEN"
    if status == HTTPStatus.NOT_FOUND:
        return f"the server there has no {WINDOWS}: is it a worker's `admin.listen`?"
    return f"answers with status {status}"


def _own_words(status: int, text: bytes) -> str | None:
    """Return the line with which ``dev`` reports that its application is not running."""
    if status != HTTPStatus.SERVICE_UNAVAILABLE:
        return None
    try:
        why = json.loads(text)["error"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return why if isinstance(why, str) and why.isprintable() else None


def _read(address: AdminAddress, text: bytes) -> AdminAnswer:
    try:
        answer = json.loads(text)
        workers = from_json(answer["workers"], tuple[WorkerSnapshot, ...])
        missing = tuple(map(str, answer.get("missing") or ()))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise AskError(f"{address}: {NOT_A_WORKER}, or like one of another version") from error
    return AdminAnswer(workers, answer, missing)
