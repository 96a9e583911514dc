from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.children import CHECKOUT
from benchmarks.peers import roster
from benchmarks.peers.contents import Contents, fill
from benchmarks.peers.environments import (
    DIRECTORY_VARIABLE,
    ENVIRONMENTS,
    Maven,
    NotInstalledError,
    Venv,
    last_error,
    made,
)
from benchmarks.peers.journal import Journal
from benchmarks.peers.measuring import install
from benchmarks.peers.roster import PEERS, Peer
from tests.golden_texts import Golden

RUNNERS = CHECKOUT / "benchmarks" / "peers"

PROGRAM = """
from benchmarks.peers.contents import Contents, fill
from benchmarks.peers.runners.trial import begin
trial = begin()
values = list(fill(Contents(trial.records, keys=2, shortest_us=100, longest_us=100)).values())
trial.handed_over(values)
for value in values[:int(trial.options["finishes"])]:
    trial.handler()(value)
trial.over.wait()
trial.answer()
"""


def trial(directory: Path, **options: Any) -> tuple[dict[str, Any], Journal]:
    """Run a peer that needs no Kafka; return its answer and its journal."""
    given = {
        **dict.fromkeys(("bootstrap", "topic", "group"), ""),
        **dict.fromkeys(("partitions", "slots"), 1),
        **dict.fromkeys(("records", "finishes", "cap_s"), 20),
        "timed": "yes",
        "journal": directory / "journal",
        **options,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *(f"{key}={value}" for key, value in given.items())],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout), Journal.read(directory / "journal")


@pytest.mark.parametrize("name", PEERS)
def test_each_peer_has_an_environment_and_a_program(name: str) -> None:
    peer = PEERS[name]
    environment = ENVIRONMENTS[peer.environment]
    if isinstance(environment, Maven):
        project = RUNNERS / environment.project
        assert (project / "pom.xml").is_file()
        program = project / "src" / "main" / "java" / "peers" / f"{peer.runner}.java"
    else:
        program = RUNNERS / "runners" / f"{peer.runner}.py"
    assert program.is_file(), program


def test_names_of_peers_are_said_once() -> None:
    assert len(PEERS) == len(roster._ALL)
    assert len({peer.title for peer in PEERS.values()}) == len(PEERS)


def test_what_a_peer_has_installed_is_pinned() -> None:
    for environment in ENVIRONMENTS.values():
        if isinstance(environment, Venv):
            assert all("==" in package for package in environment.packages)


def test_a_timed_run_notes_each_record(tmp_path: Path) -> None:
    answer, journal = trial(tmp_path)
    assert sorted(journal.numbers) == list(range(20))
    for fetched, begun, ended in zip(journal.fetched, journal.started, journal.ended, strict=True):
        assert 0 < fetched <= begun < ended
        assert ended - begun >= 100_000
    assert answer["problem"] == ""
    assert "Python" in answer["versions"]


def test_an_untimed_run_only_keeps_numbers(tmp_path: Path) -> None:
    answer, journal = trial(tmp_path, timed="no")
    assert sorted(journal.numbers) == list(range(20))
    assert not journal.timed
    assert answer["seen"] <= 20


def test_a_run_that_does_not_finish_is_over_after_its_cap(tmp_path: Path) -> None:
    answer, journal = trial(tmp_path, finishes=7, cap_s=0.2)
    assert sorted(journal.numbers) == list(range(7))
    assert answer["problem"] == ""


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = Journal.of([(7, 1, 2, 3), (2**32 - 1, 0, 2**62, 2**62 + 1)])
    written.write(tmp_path / "journal")
    assert Journal.read(tmp_path / "journal") == written


def test_a_journal_that_is_cut_short_is_refused(tmp_path: Path, golden: Golden) -> None:
    path = tmp_path / "journal"
    Journal.of([(7, 1, 2, 3)]).write(path)
    path.write_bytes(path.read_bytes()[:-1])
    with golden.raises(ValueError):
        Journal.read(path)


def test_a_value_says_number_and_wait() -> None:
    values = list(fill(Contents(3, keys=1, shortest_us=5_000, longest_us=5_000)).values())
    assert [value[:8] for value in values] == [
        number.to_bytes(4) + (5_000).to_bytes(4) for number in range(3)
    ]
    assert {len(value) for value in values} == {100}


class TestInstalling:
    def test_pips_last_error_is_the_reason(self, golden: Golden) -> None:
        said = "Looking in links\nERROR: Could not find a version\nERROR: No matching distribution"
        golden(last_error(said))

    def test_mavens_first_error_is_the_reason(self, golden: Golden) -> None:
        said = "\x1b[0m[ERROR] Could not find artifact a:b:jar:1 -> [Help 1]\n[ERROR] \n[ERROR] -e"
        golden(last_error(said))

    def test_a_peer_that_cannot_be_installed_is_named_with_the_reason(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
        monkeypatch.setitem(ENVIRONMENTS, "nowhere", Unobtainable())
        peers = [peer_in("nowhere", "one"), peer_in("nowhere", "two"), PEERS["window-key"]]
        said: list[str] = []
        commands, missing = install(peers, said.append)
        assert missing == {"one": "sold out", "two": "sold out"}
        assert list(commands) == ["window-key"]
        (line,) = said
        golden(line)

    def test_an_environment_is_made_once_and_again_when_it_changes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
        said: list[str] = []
        for text in ("one", "one", "another"):
            place = made("empty", text, Path.mkdir, said.append)
        assert place == tmp_path / "empty"
        assert said == ["installing empty"] * 2

    def test_an_environment_that_could_not_be_made_is_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))

        def fail(directory: Path) -> None:
            directory.mkdir()
            raise NotInstalledError("sold out")

        said: list[str] = []
        for _ in range(2):
            with pytest.raises(NotInstalledError):
                made("empty", "one", fail, said.append)
        assert said == ["installing empty"] * 2


class Unobtainable:
    def prepare(self, _name: str, _say: object, /) -> Path:
        raise NotInstalledError("sold out")

    def command(self, _directory: Path, _runner: str, /) -> list[str]:
        raise AssertionError


def peer_in(environment: str, name: str) -> Peer:
    return Peer(name, name, "key", "one", environment, "none", "")
