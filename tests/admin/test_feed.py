"""What pages are sent while they look, many of them and slow ones among them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic, sleep
from typing import Any

from tests.admin.admin import Asking, MadeUpBoard, asking
from window_consumer.admin import feed

PAGES = 200


@contextmanager
def page(ask: Asking) -> Iterator[socket.socket]:
    """A page that looks, and reads only what it is told to read."""
    with socket.create_connection(("127.0.0.1", ask.port), timeout=60) as connection:
        connection.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        yield connection


def frames_of(connection: socket.socket, count: int) -> list[dict[str, Any]]:
    """Read until so many numbered frames have come."""
    read = b""
    while True:
        lines = [each for each in read.split(b"\r\n") if each.startswith(b"data: ")]
        frames = [json.loads(each[6:]) for each in lines if each.endswith(b"\n\n")]
        numbered = [each for each in frames if "number" in each]
        if len(numbered) >= count:
            return numbered[:count]
        more = connection.recv(65536)
        assert more, "the connection has ended"
        read += more


def test_frames_come_one_after_another_while_somebody_looks() -> None:
    board = MadeUpBoard()
    began = monotonic()  # frames come whether somebody reads them or not
    with asking(board) as ask, page(ask) as connection:
        first, second, third = frames_of(connection, 3)
        took = monotonic() - began
    assert [second["number"] - first["number"], third["number"] - second["number"]] == [1, 1]
    assert took >= feed.FRAME_S
    assert third["workers"] == []


def test_nobody_is_asked_for_frames_while_nobody_looks() -> None:
    board = MadeUpBoard()
    with asking(board) as ask:
        with page(ask) as connection:
            frames_of(connection, 1)
        # The page's end is noticed soon; from then on nothing is made for as long as several take.
        until = monotonic() + 20.0
        while made_meanwhile(board):
            assert monotonic() < until, "frames are made all the same"


def made_meanwhile(board: MadeUpBoard) -> int:
    """Return how many frames were made while several take."""
    before = len(board.asked)
    sleep(4 * feed.FRAME_S)
    return len(board.asked) - before


def test_hundreds_of_pages_get_the_same_frames_and_cost_one_picture() -> None:
    board, began = MadeUpBoard(), monotonic()
    with asking(board) as ask, ExitStack() as stack:
        pages = [stack.enter_context(page(ask)) for _ in range(PAGES)]
        for each in pages:
            frames_of(each, 1)
        assert ask("/api/windows").status == 200
    took = monotonic() - began
    # Each page is sent one frame of its own when it comes, and then those of all.
    assert len(board.asked) <= PAGES + took / feed.FRAME_S + 5


def test_one_page_too_many_is_refused() -> None:
    with asking(most_pages=2) as ask, page(ask) as one, page(ask) as other:
        frames_of(one, 1)
        frames_of(other, 1)
        assert ask("/api/events").status == 503


def ends_within(connection: socket.socket, events: int) -> bool:
    """Read what is left; tell whether the end comes before so many further events."""
    while events >= 0:
        try:
            data = connection.recv(1 << 20)
        except ConnectionResetError:
            return True  # cut off before all was read
        if not data:
            return True
        events -= data.count(b"\n\n")
    return False


def test_who_reads_nothing_is_cut_off_and_the_others_go_on() -> None:
    board = MadeUpBoard(ballast="x" * 1_000_000)
    with asking(board, deadline_s=0.3) as ask, page(ask) as silent, page(ask) as reading:
        events = 0
        while events < 15:  # more than the system holds for one that does not read
            data = reading.recv(1 << 20)
            assert data
            events += data.count(b"\n\n")
        assert ends_within(silent, 15)
        assert reading.recv(10)


def test_who_asks_nothing_is_cut_off() -> None:
    with (
        asking(deadline_s=0.2) as ask,
        socket.create_connection(("127.0.0.1", ask.port), timeout=60) as silent,
        socket.create_connection(("127.0.0.1", ask.port), timeout=60) as slow,
        socket.create_connection(("127.0.0.1", ask.port), timeout=60) as halfway,
    ):
        with suppress(ConnectionError):  # it is cut off by now, where this comes late
            slow.sendall(b"GET /api/windows HTTP/1.1\r\nHost: local")
        with suppress(ConnectionError):
            request = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\ntok"
            halfway.sendall(request)
        assert all(map(is_cut_off, (silent, slow, halfway)))


def is_cut_off(connection: socket.socket) -> bool:
    """Return whether the end comes without an answer; what was sent late is thrown back."""
    try:
        return connection.recv(10) == b""
    except ConnectionError:
        return True
