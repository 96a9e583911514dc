"""Asking an admin address: what is understood, and what is said of everything else."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.golden_texts import Golden
from tests.telemetry.workers import a_snapshot, fake_worker, reported
from window_consumer.admin.client import Access, AdminAddress, AskError, ask
from window_consumer.model.errors import UsageError
from window_consumer.runtime.replica import HttpAnswer


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:8090", "http://127.0.0.1:8090"),
        ("https://shop.example/", "https://shop.example:443"),
        ("http://shop.example", "http://shop.example:80"),
        ("localhost", "http://localhost:8090"),
        ("localhost:1", "http://localhost:1"),
        ("http://[::1]:8090", "http://[::1]:8090"),
    ],
)
def test_an_address_is_a_url_or_a_host(text: str, address: str) -> None:
    assert str(AdminAddress.parse(text)) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "http://", "ftp://a", "http://a/b", "http://a?b", "http://u:p@a", "http://a:x"),
        *("http://a:70000", "http://[::1", "a b", "http://a\r\nX: y"),
    ],
)
def test_what_is_no_address_is_refused(text: str, golden: Golden) -> None:
    with golden.raises(UsageError):
        AdminAddress.parse(text)


def test_a_worker_tells_its_windows() -> None:
    with fake_worker() as worker:
        (found,) = ask(AdminAddress.parse(worker.url), Access()).workers
    assert (found.name, found.phase, found.is_ready) == ("charge", "running", True)
    assert (found.busy_ratio, found.time_to_drain_s) == (0.25, 90.0)
    assert found.windows == a_snapshot()


def test_who_stands_still_never_drains_although_json_has_no_infinity() -> None:
    standing = reported(time_to_drain_s=None, stands_still=True)
    with fake_worker(standing) as worker:
        (found,) = ask(AdminAddress.parse(worker.url), Access()).workers
    assert found.drain_s == float("inf")


def why(url: str, access: Access | None = None, timeout_s: float = 5.0) -> str:
    with pytest.raises(AskError) as caught:
        ask(AdminAddress.parse(url), access or Access(), timeout_s)
    text = str(caught.value)
    assert text.startswith(f"{url}: ")
    assert "\n" not in text
    return text


def test_where_nobody_listens_one_line_says_what_is_missing(golden: Golden) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    golden(why(url))


@pytest.mark.parametrize(
    ("status", "token", "said"),
    [
        (401, None, "a token is needed: give it with --token or WINDOW_CONSUMER_TOKEN"),
        (401, "secret", "the token is wrong: "),
        (403, "secret", "the token is wrong: "),
        (404, None, "has no /api/windows: is it a worker's `admin.listen`?"),
        (302, None, "answers with status 302"),
        (500, None, "answers with status 500"),
    ],
)
def test_a_refusal_is_reported_in_words(status: int, token: str | None, said: str) -> None:
    with fake_worker() as worker:
        worker.answer = lambda: HttpAnswer(status, "no")
        text = why(worker.url, Access(token))
    assert said in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"error": "shop:app does not run"}', "shop:app does not run"),
        *(
            (unusable, "answers with status 503")
            for unusable in ("no", "7", "[]", "{}", '{"error": 7}', '{"error": "a\\nb"}')
        ),
    ],
)
def test_a_worker_that_is_away_is_reported_in_the_words_of_its_address(
    text: str, said: str
) -> None:
    with fake_worker() as worker:
        worker.answer = lambda: HttpAnswer(503, text)
        assert why(worker.url) == f"{worker.url}: {said}"


@pytest.mark.parametrize(
    "fields",
    [
        *("text", [], {}, {"workers": 7}, {"workers": [7]}, {"workers": [{}]}),
        reported(snapshot=None, name="x") | {"workers": [{"name": "x", "snapshot": {"calls": 7}}]},
    ],
)
def test_who_answers_something_else_is_no_worker(fields: object, golden: Golden) -> None:
    with fake_worker(fields) as worker:
        text = why(worker.url)
    golden(text)


def test_a_worker_whose_poll_thread_is_silent_is_reported_without_a_picture() -> None:
    with fake_worker(reported(snapshot=None) | {"workers": [{"name": "charge"}]}) as worker:
        (found,) = ask(AdminAddress.parse(worker.url), Access()).workers
    assert found.windows is None
    assert not found.is_ready


@contextmanager
def listener(says: bytes | None) -> Iterator[str]:
    """One that says this to whoever comes, or nothing at all."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                if says is not None:
                    client.recv(65536)
                    client.sendall(says)
                else:
                    client.recv(65536)
                    ended.wait(30)

        ended = threading.Event()
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        ended.set()
        thread.join(10)


def test_what_does_not_speak_http_is_distinguished(golden: Golden) -> None:
    with listener(b"\x1b]0;owned\x07 220 mail.example\r\n") as url:
        golden(why(url))


def test_who_does_not_answer_is_not_waited_for(golden: Golden) -> None:
    with listener(None) as url:
        golden(why(url, timeout_s=0.2))


@pytest.mark.parametrize("token", ["a\r\nX-Other: b", "sécret", "\x00"])
def test_a_token_that_no_header_can_carry_is_refused(token: str, golden: Golden) -> None:
    with golden.raises(UsageError) as caught:
        ask(AdminAddress.parse("http://127.0.0.1:1"), Access(token))
    assert token not in str(caught.value)


def test_the_token_is_sent_and_shown_nowhere() -> None:
    access = Access("secret")
    assert access.headers() == {"Authorization": "Bearer secret"}
    assert "secret" not in repr(access)


@pytest.fixture(scope="module")
def over_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A worker that speaks TLS, with a certificate for another name; and that certificate."""
    directory = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=elsewhere", "-keyout", "key.pem"),
            *("-out", "certificate.pem"),
        ],
        cwd=directory,
        check=True,
        capture_output=True,
    )

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = json.dumps(reported()).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "certificate.pem", directory / "key.pem")
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign] # who breaks off is no trouble
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{server.server_address[1]}", directory / "certificate.pem"
        server.shutdown()
        thread.join(10)


def test_who_is_not_trusted_is_distinguished_and_gets_no_token(
    over_tls: tuple[str, Path], golden: Golden
) -> None:
    url, certificate = over_tls
    golden(why(url))
    assert "TLS: IP address mismatch" in why(url, Access("secret", certificate))


def test_the_certificate_of_the_configuration_is_trusted_whatever_its_name(
    over_tls: tuple[str, Path],
) -> None:
    url, certificate = over_tls
    (found,) = ask(AdminAddress.parse(url), Access(None, certificate, any_name=True)).workers
    assert found.name == "charge"


def test_what_speaks_no_tls_is_distinguished() -> None:
    with fake_worker() as worker:
        assert "TLS: " in why(worker.url.replace("http:", "https:"))
