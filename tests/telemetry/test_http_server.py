"""A server that nobody can hold up: neither by what is sent nor by not reading."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from urllib.parse import urlsplit

import pytest

from tests.golden_texts import Golden
from tests.telemetry.asking import asked
from window_consumer.metrics import http_server
from window_consumer.metrics.http_server import HttpServer
from window_consumer.model.errors import UsageError
from window_consumer.runtime.replica import HttpAnswer

LONG = "x" * 50_000_000


@contextmanager
def serving(deadline_s: float = 10.0) -> Iterator[HttpServer]:
    routes = {"/livez": lambda: HttpAnswer(200, "live\n"), "/long": lambda: HttpAnswer(200, LONG)}
    made = HttpServer.on_port(
        "127.0.0.1", 0, routes, lambda: None, key="health.listen", deadline_s=deadline_s
    )
    yield made
    made.close()


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with serving() as made:
        yield made


def connected(server: HttpServer) -> socket.socket:
    address = urlsplit(server.where)
    assert address.hostname is not None
    return socket.create_connection((address.hostname, address.port or 0), timeout=60)


def said_to(server: HttpServer, request: bytes) -> bytes:
    with connected(server) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


def answering() -> list[threading.Thread]:
    """Return the threads that answer somebody."""
    return [each for each in threading.enumerate() if "process_request" in each.name]


def is_alive(server: HttpServer) -> bool:
    return asked(f"{server.where}/livez") == (200, "live\n")


def test_it_answers_and_says_where_it_listens(server: HttpServer) -> None:
    assert is_alive(server)
    assert server.where.startswith("http://127.0.0.1:")


def test_a_question_mark_and_what_follows_change_nothing(server: HttpServer) -> None:
    assert b" 200 " in said_to(server, b"GET /livez?verbose=1 HTTP/1.1\r\n\r\n").splitlines()[0]


def test_head_gets_no_text(server: HttpServer) -> None:
    answer = said_to(server, b"HEAD /livez HTTP/1.0\r\n\r\n")
    assert b"Content-Length: 5" in answer
    assert not answer.endswith(b"live\n")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET /../../etc/passwd HTTP/1.0\r\n\r\n", 404),
        (b"GET /nothing/<script> HTTP/1.0\r\n\r\n", 404),
        (b"POST /livez HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", 501),
        (b"GET /livez HTTP/9.9\r\n\r\n", 505),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.0\r\n\r\n", 414),
        (b"GET /livez HTTP/1.0\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"<script>alert(1)</script>\r\n\r\n", 400),
    ],
)
def test_what_is_no_proper_request_is_refused_without_an_echo(
    server: HttpServer, request_: bytes, code: int
) -> None:
    answer = said_to(server, request_)
    phrase = "no such path" if code == HTTPStatus.NOT_FOUND else HTTPStatus(code).phrase
    assert phrase.encode() in answer
    assert b"script" not in answer
    assert b"passwd" not in answer
    assert is_alive(server)


@pytest.mark.parametrize(
    "noise", [b"", b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]
)
def test_what_is_no_http_at_all_harms_nobody(server: HttpServer, noise: bytes) -> None:
    said_to(server, noise)
    assert is_alive(server)


def being_answered(server: HttpServer, clients: ExitStack, request: bytes) -> socket.socket:
    """Return a client whose answer has begun; one that asks too late is followed by another."""
    while True:
        client = clients.enter_context(connected(server))
        with suppress(ConnectionError):
            client.sendall(request)
            if client.recv(1):
                return client


def test_who_says_nothing_and_who_reads_nothing_are_cut_off() -> None:
    with serving(deadline_s=0.2) as server, ExitStack() as clients:
        silent = clients.enter_context(connected(server))
        deaf = being_answered(server, clients, b"GET /long HTTP/1.0\r\n\r\n")
        assert silent.recv(1) == b""
        deadline = time.monotonic() + 60
        while answering() and time.monotonic() < deadline:
            time.sleep(0.01)
        # The server has given up: what comes now is only what was on its way.
        read = sum(map(len, iter(lambda: deaf.recv(1 << 20), b"")))
        assert 0 < read < len(LONG)


def test_two_hundred_that_stay_do_not_keep_the_next_one_out() -> None:
    with serving(deadline_s=600.0) as server, ExitStack() as clients:
        crowd = [clients.enter_context(connected(server)) for _ in range(200)]
        for _ in range(2):
            assert is_alive(server)
        # The oldest have made room, the others stay.
        deadline = time.monotonic() + 60
        while len(answering()) > http_server.MOST_AT_ONCE:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [each.recv(1) for each in crowd[: 200 - http_server.MOST_AT_ONCE]] == [b""] * 168
        crowd[-1].sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert crowd[-1].recv(65536).startswith(b"HTTP/1.0 200")


def test_what_is_done_meanwhile_holds_up_nobody_whether_it_blocks_or_fails() -> None:
    begun, go_on = threading.Event(), threading.Event()
    calls = iter([ValueError("no sample"), None])

    def meanwhile() -> None:
        error = next(calls)
        if error is not None:
            raise error
        begun.set()
        go_on.wait(600)

    routes = {"/livez": lambda: HttpAnswer(200, "live\n")}
    server = HttpServer.on_port("127.0.0.1", 0, routes, meanwhile, key="health.listen")
    try:
        assert begun.wait(30)
        assert is_alive(server)
    finally:
        go_on.set()
        server.close()


def test_an_address_that_is_taken_is_refused_with_what_to_do(
    server: HttpServer, golden: Golden
) -> None:
    port = urlsplit(server.where).port or 0
    with pytest.raises(UsageError) as refused:
        HttpServer.on_port("127.0.0.1", port, {}, lambda: None, key="health.listen")
    message = str(refused.value)
    golden(message)


def test_a_host_that_is_not_of_this_machine_is_refused(golden: Golden) -> None:
    with golden.raises(UsageError):
        HttpServer.on_port("192.0.2.1", 8081, {}, lambda: None, key="health.listen")


def test_after_it_was_closed_nobody_answers(server: HttpServer) -> None:
    server.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        is_alive(server)
