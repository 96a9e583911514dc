"""Who gets an answer at the admin address, and who does not."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from urllib.parse import quote

import pytest

from tests.admin.admin import TOKEN, Asking, MadeUpBoard, asking
from tests.admin.certificates import make_certificate
from tests.golden_texts import Golden
from tests.logged import events_in, fields_of, lines_of
from window_consumer.admin.client import Access, AdminAddress, AskError, command
from window_consumer.admin.config import AdminConfig
from window_consumer.admin.login_delay import FIRST_DELAY_S, LONGEST_DELAY_S, LoginDelay
from window_consumer.admin.server import serving
from window_consumer.admin.tokens import AccessRole, AccessToken
from window_consumer.config.sections.listening import TlsConfig
from window_consumer.engine.guards.breaker_state import BreakerAnswer
from window_consumer.engine.guards.interventions import (
    ConcurrencyAnswer,
    ConcurrencyRequest,
    InterventionResult,
)
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import TopicPartition

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


READER = "fedcba9876543210"


def with_roles() -> AdminConfig:
    reader = AccessToken(token=READER, role=AccessRole.READ)
    operator = AccessToken(token=READER[::-1] + "-ops", role=AccessRole.OPERATE)
    tokens = {"support": reader, "ops": operator}
    return AdminConfig(listen="127.0.0.1:0", token=TOKEN, tokens=tokens, values=True)


@pytest.mark.parametrize(
    ("name", "token", "role"),
    [
        ("admin", TOKEN, "operate"),
        ("support", READER, "read"),
        ("ops", READER[::-1] + "-ops", "operate"),
    ],
)
def test_a_role_says_who_may_act_and_the_log_says_who_did(
    name: str, token: str, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    board = MadeUpBoard()
    record = "/api/workers/charge/partitions/orders/0/records/7"
    with serving(board, with_roles(), Path()) as port:
        ask = Asking(port)
        session = ask("/login", "POST", f"token={token}").headers["set-cookie"].split("; ")[0]
        for given in (
            {"authorization": f"Bearer {token}"},
            {"cookie": session, "sec_fetch_site": "same-origin"},
        ):
            seen = ask("/api/session", **given).json
            assert (seen["name"], seen["role"]) == (name, role)
            assert ask("/api/windows", **given).status == 200
            assert ask(f"{record}/value", "POST", **given).status == 404  # not held, but allowed
            acted = [
                ask(path, "POST", **given).status
                for path in ("/api/workers/charge/pause", f"{record}/skip")
            ]
            assert acted == ([200, 200] if role == "operate" else [403, 403])
        assert ask("/logout", "POST", cookie=session, sec_fetch_site="same-origin").status == 303
        forged = session.replace(f".{name}.", ".ops." if name != "ops" else ".admin.")
        assert ask("/api/windows", cookie=forged).status == 401
    paused = lines_of(caplog, LogEvent.ADMIN_PAUSE_REQUESTED, user=name, client="127.0.0.1")
    assert len(paused) == (2 if role == "operate" else 0)
    assert all(TOKEN not in each.getMessage() for each in caplog.records)


def test_a_command_with_a_token_that_may_only_read_says_so() -> None:
    with serving(MadeUpBoard(), with_roles(), Path()) as port:
        address = AdminAddress("127.0.0.1", port)
        with pytest.raises(AskError, match="support"):
            command(address, "/api/workers/charge/pause", Access(READER))


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


def test_wrong_tokens_are_written_down_with_their_address_and_answered_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with asking(token=TOKEN) as ask:
        began = monotonic()
        assert ask("/login", "POST", "token=wrong-one").status == 303
        assert ask("/api/windows", authorization="Bearer wrong-two").status == 401
        assert monotonic() - began >= 3 * FIRST_DELAY_S
        assert ask("/api/windows").status == 401
        assert ask("/api/windows", authorization=BEARER).status == 200
    assert fields_of(caplog, LogEvent.ADMIN_TOKEN_REFUSED)["args"][0] == "127.0.0.1"
    assert "wrong-" not in caplog.text


def test_each_wrong_token_of_an_address_is_answered_later_up_to_a_bound() -> None:
    now = 0.0
    wrong = LoginDelay(lambda: now)
    delays = [wrong.record_failure("10.0.0.7") for _ in range(20)]
    assert delays[:3] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S]
    assert delays[-1] == LONGEST_DELAY_S
    assert wrong.record_failure("10.0.0.8") == FIRST_DELAY_S
    now = 100.0
    assert wrong.record_failure("10.0.0.7") == FIRST_DELAY_S


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/api/workers/charge/pause", ("charge", "pause", "the worker", "done")),
        ("/api/workers/charge/resume", ("charge", "resume", "the worker", "done")),
        (
            "/api/workers/charge/partitions/orders/3/pause",
            ("charge", "pause", TopicPartition("orders", 3), "done"),
        ),
        ("/api/workers/other/pause", ("other", "pause", "the worker", "not here")),
    ],
)
def test_who_pauses_is_written_down(
    path: str, said: tuple[object, ...], ask: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    ask(path, "POST")
    worker, address, *rest = fields_of(caplog, LogEvent.ADMIN_PAUSE_REQUESTED)["args"]
    assert (address, (worker, *rest)) == ("127.0.0.1", said)


@pytest.mark.parametrize("reason", ["a" * 201, "%0A", "%1B[2J"])
@pytest.mark.parametrize("what", ["pause", "concurrency/4"])
def test_a_reason_that_nobody_could_show_is_refused(what: str, reason: str) -> None:
    board = MadeUpBoard()
    with asking(board) as ask:
        refused = ask(f"/api/workers/charge/{what}?reason={reason}", "POST")
    assert (refused.status, refused.json["error"][:7], board.asked) == (400, "reason:", [])


@pytest.mark.parametrize(
    ("path", "answer", "status", "result"),
    [
        ("charge/breaker/release", BreakerAnswer.OBEYED, 200, "obeyed"),
        ("charge/breaker/hold", BreakerAnswer.OBEYED, 200, "obeyed"),
        ("charge/breaker/release", BreakerAnswer.NOTHING_HELD, 409, "nothing held"),
        ("charge/breaker/hold", BreakerAnswer.SWITCHED_OFF, 409, "switched off"),
        ("charge/breaker/hold", None, 504, None),
        ("other/breaker/release", BreakerAnswer.OBEYED, 404, "no such worker"),
    ],
)
def test_who_decides_about_the_breaker_is_answered_and_written_down(
    path: str,
    answer: BreakerAnswer | None,
    status: int,
    result: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    board = MadeUpBoard()
    board.answer = answer
    with asking(board) as ask:
        answered = ask(f"/api/workers/{path}", "POST")
        assert ask("/api/workers/charge/breaker/close", "POST").status == 404
        assert ask("/api/workers/charge/breaker/hold").status == 405
    assert (answered.status, answered.json.get("result")) == (status, result)
    assert ("error" in answered.json) == (status != 200)
    worker, _, wanted = path.split("/")
    assert board.asked == [f"{worker} breaker: {wanted}"]
    fields = fields_of(caplog, LogEvent.ADMIN_BREAKER_DECIDED)
    assert (fields["worker"], fields["client"]) == (worker, "127.0.0.1")
    assert (fields["wanted"], fields["result"]) == (wanted, result)


@pytest.mark.parametrize(
    ("path", "answer", "status", "result"),
    [
        ("charge/concurrency/4", ConcurrencyAnswer.OBEYED, 200, "obeyed"),
        ("charge/concurrency/auto", ConcurrencyAnswer.OBEYED, 200, "obeyed"),
        ("charge/concurrency/4", ConcurrencyAnswer.TOO_MANY, 409, "too many"),
        ("charge/concurrency/4", ConcurrencyAnswer.LEASES, 409, "leases"),
        ("charge/concurrency/4", None, 504, None),
        ("other/concurrency/4", ConcurrencyAnswer.OBEYED, 404, "no such worker"),
    ],
)
def test_who_sets_the_concurrency_is_answered_and_written_down(
    path: str,
    answer: ConcurrencyAnswer | None,
    status: int,
    result: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    board = MadeUpBoard()
    board.concurrency = answer
    with asking(board) as ask:
        answered = ask(f"/api/workers/{path}?reason=bank", "POST")
        for wrong in ("0", "-1", "four", "1.5", "9" * 20):
            assert ask(f"/api/workers/charge/concurrency/{wrong}", "POST").status == 404
        assert ask("/api/workers/charge/concurrency/4").status == 405
    assert (answered.status, answered.json.get("result")) == (status, result)
    assert ("error" in answered.json) == (status != 200)
    worker, _, wanted = path.split("/")
    limit = None if wanted == "auto" else int(wanted)
    assert board.asked == [f"{worker} {limit}, {ConcurrencyRequest(limit, '', 'bank')}"]
    fields = fields_of(caplog, LogEvent.ADMIN_CONCURRENCY_REQUESTED)
    assert (fields["worker"], fields["client"]) == (worker, "127.0.0.1")
    assert (fields["limit"], fields["reason"], fields["result"]) == (limit, "bank", result)


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/api/windows", {"sec_fetch_site": "cross-site"}),
        ("GET", "/api/windows", {"sec_fetch_site": "same-site"}),
        ("GET", "/api/windows", {"origin": "https://evil.example"}),
        ("POST", "/api/workers/a/pause", {"origin": "null"}),
        ("POST", "/api/workers/a/pause", {"origin": "http://["}),
        ("POST", "/api/workers/a/pause", {"origin": "http://127.0.0.1:1"}),
        ("POST", "/api/workers/a/pause", {"cookie": "wc_admin_1=x"}),
        ("POST", "/api/workers/a/breaker/release", {"origin": "null"}),
        ("POST", "/api/workers/a/breaker/hold", {"sec_fetch_site": "cross-site"}),
        ("POST", "/api/workers/a/partitions/b/0/records/1/skip", {"origin": "null"}),
        ("POST", "/api/workers/a/partitions/b/0/records/1/skip", {"sec_fetch_site": "cross-site"}),
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
    with socket.create_connection(("127.0.0.1", ask.port), timeout=60) as connection:
        connection.sendall(request_)
        answer = connection.recv(1000)
    assert not answer.startswith(b"HTTP/1.1 2")
    assert ask("/api/windows").status == 200


@pytest.mark.parametrize(
    "path",
    [
        f"/api/workers/a/partitions/t/0/records/{'9' * 5000}",
        f"/api/workers/a/partitions/t/0/cells/{'9' * 5000}",
        f"/api/frame?since={'9' * 5000}",
        "/api/workers/a/partitions/t/0/cells/\u0661",
        "/api/workers/a/partitions/t/-1/cells/1",
        "/api/workers/%ff/partitions/%00/0/cells/1",
        "/api/frame?since=%D9%A1",
    ],
)
def test_numbers_that_are_none_are_refused(ask: Asking, path: str) -> None:
    assert ask(quote(path, safe="/?=%")).status in {200, 400, 404}


def test_what_there_is_not_is_reported_as_json_too(ask: Asking) -> None:
    nothing, not_so = ask("/api/nothing"), ask("/api/workers/a/pause", "PUT")
    assert (nothing.status, nothing.json) == (404, {"error": "Not Found"})
    assert (not_so.status, not_so.json) == (405, {"error": "Method Not Allowed"})
    assert not_so.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (InterventionResult.SKIPPED, 200),
        (InterventionResult.LEAVING, 202),
        (InterventionResult.NOT_ASSIGNED, 404),
        (InterventionResult.RUNNING, 409),
        (None, 504),
    ],
)
def test_what_became_of_a_record_is_reported_by_status_and_in_words(
    verdict: InterventionResult | None, status: int
) -> None:
    board = MadeUpBoard()
    board.verdict = verdict
    with asking(board) as ask:
        answer = ask("/api/workers/charge/partitions/orders/0/records/7/skip", "POST")
        other = ask("/api/workers/charge/partitions/orders/0/records/7/dead-letter", "POST")
        assert ask("/api/workers/charge/partitions/orders/0/records/7/drop", "POST").status == 404
        assert ask("/api/workers/charge/partitions/orders/0/records/7/skip").status == 405
    assert (answer.status, other.status) == (status, status)
    assert answer.json.get("verdict") == verdict
    assert ("error" in answer.json) is (status != 200)
    assert board.asked == ["skip: charge orders[0]@7", "dead-letter: charge orders[0]@7"]


def test_a_value_is_reported_only_where_that_is_allowed_and_when_it_is_asked_for(
    caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    caplog.set_level("INFO", "window_consumer")
    path = "/api/workers/charge/partitions/orders/0/records/7/value"
    board = MadeUpBoard()
    with asking(board) as ask:
        refused = ask(path, "POST")
        assert refused.status == 403
        golden(refused.json["error"])
    assert board.asked == []
    with asking(board, TOKEN, values=True) as ask:
        assert ask(path, "POST").status == 401
        assert ask(path, authorization=BEARER).status == 405  # no link leads to it
        assert ask(path, "POST", origin="https://evil.example", authorization=BEARER).status == 403
        assert board.asked == []
        assert ask(path, "POST", authorization=BEARER).status == 404
        board.record_value = {"form": "text", "text": "\ud800", "bytes": 3, "is_cut": False}
        reported = ask(path, "POST", authorization=BEARER)
    assert (reported.status, reported.json) == (200, board.record_value)
    assert board.asked == ["value orders[0] 7"] * 2
    asked = lines_of(caplog, LogEvent.ADMIN_VALUE_SHOWN)
    assert {each.args for each in asked} == {("charge", "admin at 127.0.0.1", "orders[0] offset 7")}


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_all_of_the_machine_means_that_of_both_kinds_of_addresses() -> None:
    admin = AdminConfig(listen="[::]:0", insecure=True)
    with serving(MadeUpBoard(), admin, Path()) as port:
        assert Asking(port)("/api/windows").status == 200


def statuses(admin: AdminConfig, path: str, method: str, *hosts: str) -> list[int]:
    """Ask as a browser would whose page has that name: there it is all of one origin."""
    with serving(MadeUpBoard(), admin, Path()) as port:
        ask, token = Asking(port), {} if admin.token is None else {"authorization": BEARER}
        return [
            ask(
                path,
                method,
                host=host,
                origin=f"http://{host}",
                sec_fetch_site="same-origin",
                **token,
            ).status
            for host in hosts
        ]


@pytest.mark.parametrize(
    ("path", "method"), [("/api/windows", "GET"), ("/api/workers/charge/pause", "POST")]
)
def test_no_foreign_name_leads_to_an_address_without_a_token(path: str, method: str) -> None:
    """DNS rebinding: a page of evil.example, whose name leads to this machine by now."""
    admin = AdminConfig(listen="0.0.0.0:0", insecure=True)
    names = ["evil.example", "evil.example:80", "10.0.0.7", "[fd00::7]:80", "localhost:8090"]
    machine = socket.gethostname()
    assert statuses(admin, path, method, *names, machine) == [421, 421, 200, 200, 200, 200]


def test_the_configuration_says_by_which_names_the_address_is_called() -> None:
    hosts = ("Admin.example.com", "[fd00::7]")
    admin = AdminConfig(listen="0.0.0.0:0", insecure=True, hosts=hosts)
    asked = ["admin.example.com", "ADMIN.example.com.:8443", "127.0.0.1:9", "[fd00::7]:1"]
    others = ["evil.example", "10.0.0.7", "xadmin.example.com", ""]
    found = statuses(admin, "/api/windows", "GET", *asked, *others)
    assert found == [200] * 4 + [421] * 4
    with_token = AdminConfig(listen="0.0.0.0:0", token=TOKEN, insecure=True)
    assert statuses(with_token, "/api/windows", "GET", "any.example") == [200]
    both = AdminConfig(listen="127.0.0.1:0", token=TOKEN, hosts=("a.example",))
    assert statuses(both, "/api/windows", "GET", "a.example", "any.example") == [200, 421]


def test_an_address_that_this_machine_has_not_is_reported() -> None:
    admin = AdminConfig(listen="no-such-host.invalid:0", insecure=True)
    reported = r"admin[.]listen: cannot listen on no-such-host[.]invalid:0: [^(]*; choose another"
    with pytest.raises(UsageError, match=reported), serving(MadeUpBoard(), admin, Path()):
        pass


def test_a_failure_tells_nothing_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MadeUpBoard):
        def windows(self, *, stacks: bool, history: bool) -> dict[str, object]:
            raise RuntimeError(f"secret {stacks} {history}")

    with asking(Broken()) as ask:
        answer = ask("/api/windows")
    assert (answer.status, "secret" in answer.text) == (500, False)
    assert events_in(caplog)[-1] == LogEvent.ADMIN_REQUEST_FAILED


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    make_certificate(directory / "certificate.pem", directory / "key.pem")
    make_certificate(directory / "unused.pem", directory / "other.pem")
    closed = ["openssl", "ec", "-in", "key.pem", "-out", "closed.pem", "-aes256", "-passout"]
    subprocess.run([*closed, "pass:x"], cwd=directory, check=True, capture_output=True)
    return directory


def with_tls(certificate: str = "certificate.pem", key: str = "key.pem") -> AdminConfig:
    tls = TlsConfig(certificate=certificate, key=key)
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


@pytest.mark.parametrize(
    ("files", "reported"),
    [
        ({"key": "missing.pem"}, r"admin[.]tls[.]key: .*missing.pem cannot be read: No such file"),
        ({"certificate": "."}, r"admin[.]tls[.]certificate: .* cannot be read: Is a directory"),
        ({"key": "certificate.pem"}, r"admin[.]tls: .* cannot be used: both must be in PEM"),
        ({"certificate": "key.pem"}, r"admin[.]tls: .* cannot be used: both must be in PEM"),
        ({"key": "other.pem"}, r"admin[.]tls: .*: the key does not belong to the certificate"),
        ({"key": "closed.pem"}, r"admin[.]tls: .*, the key without a passphrase"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_reported_before_anything_starts(
    certificate: Path, files: dict[str, str], reported: str
) -> None:
    with (
        pytest.raises(UsageError, match=reported),
        serving(MadeUpBoard(), with_tls(**files), certificate),
    ):
        pass
