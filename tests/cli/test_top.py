"""``top``: the live window of workers that run elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.commands import DEADLINE_S, Commands, Ended
from tests.golden_texts import Golden
from tests.telemetry.workers import fake_worker, reported
from window_consumer.cli.main import cli
from window_consumer.cli.output import guarded
from window_consumer.runtime.replica import HttpAnswer

Top = Callable[..., Ended]


@pytest.fixture
def top(capsys: pytest.CaptureFixture[str]) -> Iterator[Top]:
    """Run the command in this process until it ends."""

    def run(*arguments: str) -> Ended:
        code = guarded(lambda: int(cli.main(["top", *arguments], standalone_mode=False) or 0))
        return Ended(code, *capsys.readouterr())

    before = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, before)


def test_one_picture_for_scripts(top: Top) -> None:
    with fake_worker() as worker:
        ended = top(worker.url, "--once")
    assert (ended.code, ended.err) == (0, "")
    assert "[H■__]" in ended.out
    assert "\x1b" not in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80


def test_one_picture_as_json_of_several_processes(top: Top) -> None:
    with fake_worker() as one, fake_worker(reported(name="refund")) as other:
        ended = top(one.url, other.url, "--once", "--json")
    assert ended.code == 0
    assert ended.out.count("\n") == 1
    first, second = ended.json["processes"]
    assert (first["url"], first["gone"]) == (one.url, None)
    assert second["answer"]["workers"][0]["name"] == "refund"


def test_who_never_was_there_is_one_line_and_exit_code_1(top: Top, golden: Golden) -> None:
    ended = top("http://127.0.0.1:1")
    assert ended.code == 1
    golden(ended.err)
    assert ended.err.count("\n") == 1


def test_where_one_of_several_is_missing_the_others_are_shown(top: Top, golden: Golden) -> None:
    with fake_worker() as worker:
        ended = top(worker.url, "http://127.0.0.1:1", "--once")
    assert ended.code == 1
    assert "charge" in ended.out
    golden(ended.out)


def test_a_copy_that_does_not_answer_beside_others_is_shown(top: Top, golden: Golden) -> None:
    with fake_worker(reported() | {"missing": ["2"]}) as worker:
        ended = top(worker.url, "--once")
    golden(ended.out)
    assert "slots busy" in ended.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("gopher://x",), "is not a worker's address"),
        (("--interval", "1ms"), "at least 0.1s"),
        (("--ca", __file__, "https://127.0.0.1:1"), "it has no readable certificates"),
        (("--token", "a\nb"), "the token has characters"),
    ],
)
def test_wrong_usage_is_exit_code_2(top: Top, arguments: tuple[str, ...], said: str) -> None:
    ended = top(*arguments)
    assert ended.code == 2
    assert said in ended.err


def test_a_wrong_token_is_one_line(
    top: Top, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setenv("WINDOW_CONSUMER_TOKEN", "s3cret")
    with fake_worker() as worker:
        worker.answer = lambda: HttpAnswer(401, "no")
        ended = top(worker.url)
    assert ended.code == 1
    golden(ended.err)
    assert "s3cret" not in ended.err


def test_a_process_that_goes_away_is_shown_as_gone_and_comes_back(
    commands: Commands, golden: Golden
) -> None:
    with fake_worker(reported(name="refund")) as other:
        with fake_worker() as worker:
            url = worker.url
            top = commands.start("top", url, other.url, "--interval", "100ms")
            top.wait_for(f"{url} charge")
        # The connection on which it went away was reset; the next one finds nobody.
        top.wait_for(f"{url}: gone: nothing")
        line = next(each for each in top.said.splitlines() if f"{url}: gone: nothing" in each)
        golden(line.partition(": is ")[0])
        seen = top.said.count(f"{url} charge")
        with fake_worker(port=int(url.rpartition(":")[2])):
            top.wait_for(f"{url} charge", times=seen + 1)
            top.signal(signal.SIGINT)
            ended = top.wait()
    assert (ended.code, ended.err) == (0, "")


IN_BACKGROUND = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Shells without job control let what they start in the background ignore SIGINT."""


def read_soon(terminal: int) -> bytes:
    ready, _, _ = select.select([terminal], [], [], DEADLINE_S)
    assert ready, "nothing is drawn any more"
    return os.read(terminal, 65536)


def test_in_a_terminal_ctrl_c_ends_it_and_puts_the_terminal_back(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "window_consumer", "top", "--interval", "100ms")
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with fake_worker() as worker:
        process = subprocess.Popen(
            [*IN_BACKGROUND, *command, worker.url],
            cwd=tmp_path,
            env={**os.environ, "TERM": "xterm-256color"},
            stdin=its,
            stdout=its,
            stderr=its,
        )
        os.close(its)
        said = b""
        while b"slots busy" not in said:
            said += read_soon(ours)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # the other side has closed the terminal
            while piece := read_soon(ours):
                said += piece
        assert process.wait(DEADLINE_S) == 0
    os.close(ours)
    entered, left = b"\x1b[?1049h", b"\x1b[?1049l"
    assert said.count(entered) == said.count(left) == 1
    assert b"Traceback" not in said
