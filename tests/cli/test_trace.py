"""``window-consumer trace``: bad input, and answers from a table that lies there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import pytest

from tests.commands import Ended
from tests.golden_texts import Golden
from tests.model.test_journey import event, sent, story
from tests.pipeline.test_search import write
from window_consumer.cli.main import cli
from window_consumer.cli.output import guarded


@attrs.frozen
class Trace:
    """``trace("show", "a")`` runs the command in this process, in a directory of its own."""

    directory: Path
    captured: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> Ended:
        given = ["trace", *arguments, "-c", str(self.directory / "pipeline.yaml")]
        code = guarded(lambda: int(cli.main(given, standalone_mode=False) or 0))
        said = self.captured.readouterr()
        return Ended(code, said.out, said.err)


@pytest.fixture
def trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Trace:
    return Trace(tmp_path, capsys)


NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
NO_MORE: Mapping[str, Any] = MappingProxyType({})


def configure(trace: Trace, more: Mapping[str, Any] = NO_MORE) -> None:
    text = {"kafka": NOWHERE, "directory": "wh", **more}
    (trace.directory / "pipeline.yaml").write_text(json.dumps(text))


def with_table(trace: Trace, more: Mapping[str, Any] = NO_MORE) -> None:
    configure(trace, more)
    write(trace.directory / "wh" / "tables" / "trace", story())


def test_a_missing_table_says_what_makes_it(trace: Trace, golden: Golden) -> None:
    configure(trace)
    for arguments in (("show", "a"), ("search",), ("delete", "--key", "k")):
        ended = trace(*arguments)
        assert ended.code == 2
        golden(ended.err)


def test_a_journey_is_a_tree_with_times_attempts_and_ends(trace: Trace, golden: Golden) -> None:
    with_table(trace)
    ended = trace("show", "orders/0/17", "--indexed-only")
    assert ended.code == 0
    lines = [line.lstrip("│├└─ ") for line in ended.out.splitlines()]
    reported = [" ".join(line.split()) for line in lines]
    assert reported[0] == "orders/0/17 orders[0]@17 · key k · tags a,b"
    assert "group g 4 attempts · put back 1 time processed" in reported
    golden("\n".join(reported))
    assert "g.orders.retry.1s[0]@1 on 10.0.0.2" in reported
    assert reported[-1] == "14 steps in 9.0 s"


def test_what_is_not_known_ends_with_3(trace: Trace) -> None:
    with_table(trace)
    for arguments in (("show", "nobody"), ("search", "--key", "nobody")):
        assert trace(*arguments, "--indexed-only").code == 3


def test_steps_of_two_clusters_are_distinguished(trace: Trace, golden: Golden) -> None:
    configure(trace)
    ours = [sent(1, cluster="one:9092"), event("received", 2, cluster="one:9092")]
    theirs = event("received", 3, event_id="theirs", cluster="two:9092")
    write(trace.directory / "wh" / "tables" / "trace", [*ours, theirs])
    both = trace("show", "orders/0/17", "--indexed-only")
    golden(both.err)
    one = ("--cluster", "one:9092", "--indexed-only", "--json")
    ended = trace("show", "orders/0/17", *one)
    assert [json.loads(line)["step"] for line in ended.out.splitlines()] == ["sent", "received"]
    assert ended.err == ""


def test_records_of_two_clusters_at_one_place_are_distinguished(
    trace: Trace, golden: Golden
) -> None:
    """... where each of them has an id of its own, by which it names one cluster only."""
    configure(trace)
    events = [
        event("received", at, event_id=name, record_id=name, root_id=name, cluster=f"{name}:9092")
        for at, name in enumerate(("one", "two"))
    ]
    write(trace.directory / "wh" / "tables" / "trace", events)
    both = trace("show", "orders/0/17", "--indexed-only")
    golden(both.err)
    assert "one" in both.out
    assert "two" in both.out
    theirs = trace("show", "orders/0/17", "--cluster", "two:9092", "--indexed-only", "--json")
    assert [json.loads(line)["record_id"] for line in theirs.out.splitlines()] == ["two"]
    assert theirs.err == ""


def test_what_strangers_wrote_does_not_command_the_terminal(trace: Trace) -> None:
    configure(trace)
    evil = event("failed", 3, attempt=1, error_class="\x1b[2J[bold]no", handler="\x1b]0;x\x07")
    write(trace.directory / "wh" / "tables" / "trace", [evil])
    for arguments in (("show", "orders/0/17"), ("search",)):
        ended = trace(*arguments, "--indexed-only")
        assert "\x1b[2J" not in ended.out
        assert "\x1b]0" not in ended.out
        assert "[bold]no" in ended.out


def test_nothing_is_deleted_without_a_yes(trace: Trace, golden: Golden) -> None:
    with_table(trace)
    dry = trace("delete", "--key", "k", "--dry-run")
    assert dry.code == 0
    golden(dry.out.split(" in ")[0])
    refused = trace("delete", "--key", "k")
    assert refused.code == 2
    golden(refused.err)
    assert trace("search", "--key", "k", "--indexed-only").code == 0


def test_a_trace_without_keys_has_none_to_look_for(trace: Trace, golden: Golden) -> None:
    with_table(trace, {"trace": {"keys": "off"}})
    for arguments in (("search", "--key", "k"), ("delete", "--key", "k", "--yes")):
        ended = trace(*arguments)
        assert ended.code == 2
        golden(ended.err)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--since", "1h", "--from", "2026-01-01"), "--since and --from are mutually exclusive"),
        (("--from", "2026-01-02", "--to", "2026-01-01"), "--to must be after --from"),
        (("--from", "2026-01-02", "--to", "2026-01-02"), "--to must be after --from"),
        (("--since", "1h", "--to", "2026-01-01"), "--to must be after --since"),
        (("--from", "noon"), "'noon' is not a time"),
        (("--since", "1"), "'1' "),
        (("--at", "orders/x"), "--at orders/x: write orders, orders/0 or orders/0/17"),
        (("--step", "gone"), "'gone' is not one of"),
        (("--limit", "0"), "0 is not in the range"),
    ],
)
def test_what_is_asked_wrongly_is_reported_before_anything_is_read(
    trace: Trace, options: tuple[str, ...], said: str
) -> None:
    configure(trace)
    ended = trace("search", *options)
    assert ended.code == 2
    assert said in ended.err
