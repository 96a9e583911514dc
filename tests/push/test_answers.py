"""What becomes of a record, by the answer of the service."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.admin.certificates import make_certificate
from tests.push.service import Answered, Service, closed_port, socket_that_says, statuses
from tests.push.worker import pushing
from window_consumer.model.errors import HoldCalls
from window_consumer.push.answer import LONGEST_HOLD_S, MOST_BYTES, retry_after
from window_consumer.push.pause import KIND, ServicePause
from window_consumer.testing import DEAD_LETTERED, DONE, SKIPPED

NO_WAIT: dict[str, Any] = {"retry": {"attempts": 2, "backoff": "1ms..1ms"}}
NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_a_status_of_success_finishes_the_record(status: int, service: Service) -> None:
    service.answer = statuses(status)
    with pushing(service.url) as worker:
        assert worker.send("orders", "one").outcome is DONE
    assert service.bodies == ["one"]


def test_a_status_to_skip_skips_the_record(service: Service) -> None:
    service.answer = statuses(409)
    with pushing(service.url, {"skip_status": [409]}) as worker:
        assert worker.send("orders", "one").outcome is SKIPPED


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_a_fatal_status_makes_a_dead_letter_at_once(status: int, service: Service) -> None:
    service.answer = lambda _: Answered(status, b"currency?")
    with pushing(service.url, **NO_WAIT) as worker:
        assert worker.send("orders", "one").outcome is DEAD_LETTERED
        (letter,) = worker.dead_letters
    assert len(service.posted) == 1
    assert letter.reason == "FATAL"
    assert re.search(rf"{status}.*currency\?", letter.error_message or "")


@pytest.mark.parametrize("status", [301, 307, 401, 403, 404, 408, 429, 500, 502, 503])
def test_any_other_status_is_a_failure(status: int, service: Service) -> None:
    service.answer = statuses(status, 200)
    with pushing(service.url, **NO_WAIT) as worker:
        sent = worker.send("orders", "one")
        worker.advance("1s")
    assert sent.outcome is DONE
    assert [each.header("Wc-Attempt") for each in service.posted] == ["1", "2"]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(status: int, service: Service) -> None:
    elsewhere = {"Location": f"http://127.0.0.1:{closed_port()}/"}
    service.answer = lambda _: Answered(status, headers=elsewhere)
    with pushing(service.url, retry={"attempts": 1}) as worker:
        worker.send("orders", "one")
        (letter,) = worker.dead_letters
    assert (letter.error_class or "").endswith("RedirectError")


@pytest.mark.parametrize("status", [429, 503])
def test_a_pause_holds_all_calls_and_spends_no_attempt(status: int, service: Service) -> None:
    def answer(_: object) -> Answered:
        asks = len(service.posted) == 1
        return Answered(status, headers={"Retry-After": "20"}) if asks else Answered()

    service.answer = answer
    with pushing(service.url, concurrency=1, retry={"attempts": 1}) as worker:
        sent = [worker.send("orders", str(each)) for each in range(5)]
        worker.advance("19s")
        assert len(service.posted) == 1
        worker.advance("2s")
        assert all(each.outcome is DONE for each in sent)
        assert worker.dead_letters == []
    assert {each.header("Wc-Attempt") for each in service.posted} == {"1"}


def test_with_many_connections_a_pause_stops_those_that_have_not_begun(service: Service) -> None:
    service.answer = lambda _: Answered(503, headers={"Retry-After": "60"})
    with pushing(service.url, concurrency=4, retry={"attempts": 1}) as worker:
        worker.send_many("orders", [str(each) for each in range(100)])
        worker.advance("50s")
        assert 1 <= len(service.posted) <= 4
        service.answer = statuses(200)
        worker.advance("20s")
        assert len(set(service.bodies)) == 100
        assert worker.dead_letters == []


def test_a_pause_is_shown_and_ends_by_itself() -> None:
    wall_ms = [NOW_MS]
    pause = ServicePause("orders")
    pause.begin(lambda: wall_ms[0])

    async def ask() -> None:
        pause.ask(HoldCalls(20.0, "503"))
        with pytest.raises(HoldCalls):
            pause.check()

    asyncio.run(ask())
    (finding,) = pause.findings()
    assert (finding.kind, finding.figures["left_s"], finding.ends_itself) == (KIND, 20.0, True)
    assert not pause.pauses(0.0)
    wall_ms[0] += 20_001
    assert pause.findings() == ()
    asyncio.run(checked(pause))


async def checked(pause: ServicePause) -> None:
    pause.check()


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("0", 1.0),
        ("0000000000120", 120.0),
        (" 120 ", 120.0),
        ("31536000", LONGEST_HOLD_S),
        ("9" * 400, LONGEST_HOLD_S),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 1.0),
        ("Tue, 14 Nov 2023 22:13:50 +99999999999999999", None),
        ("Tue, 14 Nov 2023 22:13:50 -0000", 30.0),
        (None, None),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
        ("²", None),
    ],
)
def test_a_pause_is_a_number_of_seconds_or_a_date(value: str | None, wait_s: float | None) -> None:
    assert retry_after(value, NOW_MS) == wait_s


def error_of(url: str, **http: Any) -> str:
    """Return the class of the error of a record that was not accepted."""
    with pushing(url, http, retry={"attempts": 1}) as worker:
        worker.send("orders", "one")
        (letter,) = worker.dead_letters
    return (letter.error_class or "").rpartition(".")[2]


def test_a_service_that_is_gone_is_a_failure() -> None:
    assert error_of(f"http://127.0.0.1:{closed_port()}/") == "NoConnectionError"


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..example", "a" * 64 + ".example"])
def test_a_name_that_does_not_resolve_is_a_failure(host: str) -> None:
    assert error_of(f"http://{host}/") == "NoConnectionError"


def test_a_service_without_tls_is_a_failure(service: Service) -> None:
    url = service.url.replace("http://", "https://")
    assert error_of(url) == "NoConnectionError"


def test_a_certificate_that_nobody_vouches_for_is_a_failure(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    with Service(tls=tls) as service:
        assert error_of(service.url) == "NoConnectionError"
    assert service.posted == []


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 banana\r\n\r\n"])
def test_what_is_not_http_is_a_failure(answer: bytes) -> None:
    with socket_that_says(answer) as url:
        assert error_of(url) == "NotHttpError"


def test_a_connection_that_breaks_is_a_failure() -> None:
    with socket_that_says(b"") as url:
        assert error_of(url) == "NoConnectionError"
    with socket_that_says(b"HTTP/1.1 101 Switching Protocols\r\n\r\n") as url:
        assert error_of(url) == "NotHttpError"
    with socket_that_says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf") as url:
        assert error_of(url) == "NoConnectionError"


def test_a_slow_service_is_a_failure(service: Service) -> None:
    async def answer() -> Answered:
        await asyncio.sleep(30)
        return Answered()

    service.answer = lambda _: answer()
    assert error_of(service.url, timeout="200ms") == "NoAnswerInTimeError"


def test_of_a_long_answer_only_the_beginning_is_read(service: Service) -> None:
    service.answer = lambda _: Answered(200, b"x" * 65536, chunks=160)
    with pushing(service.url) as worker:
        assert worker.send("orders", "one").outcome is DONE
        assert worker.send("orders", "two").outcome is DONE
    first, second = (each.connection for each in service.posted)
    assert first != second
    assert MOST_BYTES < 160 * 65536


@pytest.mark.parametrize("make", [lambda: b"\xff\xfe\x00" * 100, lambda: b"\x1b[31m" * 100])
def test_an_answer_that_is_no_text_is_shown_as_text(
    make: Callable[[], bytes], service: Service
) -> None:
    service.answer = lambda _: Answered(400, make())
    with pushing(service.url) as worker:
        worker.send("orders", "one")
        (letter,) = worker.dead_letters
    assert (letter.error_message or "").isprintable()
