"""Who gets an answer at the admin address, and who does not."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.admin import TOKEN, Asking, MadeUpBoard, asking
from window_consumer.config.listening import AdminConfig, TlsConfig
from window_consumer.model.errors import UsageError
from window_consumer.web.server import serving

BEARER = f"Bearer {TOKEN}"


@pytest.fixture(scope="module")
def ask() -> Iterator[Asking]:
    with asking() as ask:
        yield ask


@pytest.fixture(scope="module")
def guarded() -> Iterator[Asking]:
    with asking(token=TOKEN) as ask:
        yield ask


def test_without_a_token_whoever_gets_there_may_look(ask: Asking) -> None:
    answer = ask("/api/windows")
    assert (answer.status, answer.json["workers"]) == (200, [])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer 0123456789abcdee"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer \xe4"},
        {"cookie": f"wc_admin_1={TOKEN}"},
    ],
)
def test_with_a_token_nobody_else_gets_anything(headers: dict[str, str]) -> None:
    board = MadeUpBoard()
    with asking(board, TOKEN) as ask:
        answer = ask("/api/windows", **headers)
    assert (answer.status, board.asked) == (401, [])
    assert TOKEN not in answer.text
    assert answer.headers["www-authenticate"] == "Bearer"


def test_whoever_shows_the_token_gets_an_answer(guarded: Asking) -> None:
    assert guarded("/api/windows", authorization=BEARER).status == 200


def test_the_form_gives_a_session_that_scripts_and_other_sites_cannot_use(guarded: Asking) -> None:
    answer = guarded("/login", "POST", f"token={TOKEN}")
    assert (answer.status, answer.headers["location"]) == (303, "./")
    session, *rules = answer.headers["set-cookie"].split("; ")
    assert {"httponly", "samesite=strict"} <= {rule.lower() for rule in rules}
    assert TOKEN not in session
    assert guarded("/api/windows", cookie=session).status == 200
    tampered = session[:-1] + ("0" if session[-1] != "0" else "1")
    assert guarded("/api/windows", cookie=tampered).status == 401
    name, _, value = session.partition("=")
    later = f"{name}=9{value}"
    assert guarded("/api/windows", cookie=later).status == 401


def test_a_wrong_token_in_the_form_gives_the_form_once_more(guarded: Asking) -> None:
    answer = guarded("/login", "POST", "token=wrong")
    assert (answer.status, answer.headers["location"]) == (303, "login?wrong")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/api/windows", {"sec_fetch_site": "cross-site"}),
        ("GET", "/api/windows", {"sec_fetch_site": "same-site"}),
        ("GET", "/api/windows", {"origin": "https://evil.example"}),
        ("POST", "/api/workers/a/pause", {"origin": "null"}),
        ("POST", "/api/workers/a/pause", {"origin": "http://127.0.0.1:1"}),
        ("POST", "/api/workers/a/pause", {"cookie": "wc_admin_1=x"}),
        ("POST", "/login", {"origin": "https://evil.example"}),
    ],
)
def test_another_sites_page_gets_nothing_even_where_there_is_no_token(
    method: str, path: str, headers: dict[str, str], ask: Asking
) -> None:
    assert ask(path, method, **headers).status == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_name_of_somebody_else_that_leads_here_gets_nothing(ask: Asking, host: str) -> None:
    assert ask("/api/windows", host=host).status == 421


@pytest.mark.parametrize("host", ["localhost:1234", "127.0.0.1", "[::1]:9"])
def test_a_tunnel_may_have_another_port(ask: Asking, host: str) -> None:
    assert ask("/api/windows", host=host).status == 200


def test_every_answer_tells_browsers_to_run_nothing_and_keep_nothing(ask: Asking) -> None:
    answers = [ask("/api/windows"), ask("/no/such/path"), ask("/api/windows", host="x")]
    for answer in answers:
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../board.py",
        "/static/%2e%2e/board.py",
        "/static/..%2fboard.py",
        "/static//etc/passwd",
        "/../../etc/passwd",
        "/static/",
        "/static",
    ],
)
def test_paths_that_lead_outside_lead_nowhere(ask: Asking, path: str) -> None:
    answer = ask(path)
    assert answer.status in {404, 405}
    assert "root:" not in answer.text
    assert "Board" not in answer.text


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_the_next_one_answered(
    ask: Asking, request_: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", ask.port), timeout=10) as connection:
        connection.sendall(request_)
        answer = connection.recv(1000)
    assert not answer.startswith(b"HTTP/1.1 2")
    assert ask("/api/windows").status == 200


def test_a_failure_tells_nothing_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MadeUpBoard):
        def windows(self, *, stacks: bool, history: bool) -> dict[str, object]:
            raise RuntimeError(f"secret {stacks} {history}")

    with asking(Broken()) as ask:
        answer = ask("/api/windows")
    assert (answer.status, "secret" in answer.text) == (500, False)
    assert "please report this bug" in caplog.text


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"),
            *("subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "certificate.pem"),
        ],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    return directory


def with_tls(key: str = "key.pem") -> AdminConfig:
    tls = TlsConfig(certificate="certificate.pem", key=key)
    return AdminConfig(listen="127.0.0.1:0", token=TOKEN, tls=tls)


def test_with_a_certificate_it_is_https_and_sessions_stay_with_it(certificate: Path) -> None:
    trust = ssl.create_default_context(cafile=str(certificate / "certificate.pem"))
    with serving(MadeUpBoard(), with_tls(), certificate) as port:
        ask = Asking(port, trust)
        assert ask("/api/windows", authorization=BEARER).status == 200
        cookie = ask("/login", "POST", f"token={TOKEN}").headers["set-cookie"]
        assert "secure" in cookie.lower()
        with pytest.raises((http.client.HTTPException, OSError)):
            Asking(port)("/api/windows", authorization=BEARER)


def test_a_key_that_does_not_fit_is_told_before_anything_starts(certificate: Path) -> None:
    told = pytest.raises(UsageError, match=r"admin[.]tls: .*cannot be used")
    with told, serving(MadeUpBoard(), with_tls(key="certificate.pem"), certificate):
        pass
    with told, serving(MadeUpBoard(), with_tls(key="missing.pem"), certificate):
        pass
