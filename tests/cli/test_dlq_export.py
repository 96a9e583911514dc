"""``window-consumer dlq export``."""

from __future__ import annotations

import re

import pytest

from tests.cli.dead_letters import DLQ, SHOP, config_for, fill, letter
from tests.commands import Commands
from tests.model.test_dead_letter import SPRING
from window_consumer.dlq.dead_letter import read_dead_letter
from window_consumer.dlq.files import read_line
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    commands.configure(config_for(embedded.bootstrap, dlq={"mask": ["iban"]}))
    commands.application(SHOP)
    fill(
        embedded,
        letter(1, b'{"iban": "DE1"}', own=[("raw", b"\xff")]),
        letter(2, b"\x00\xff", reason="FATAL"),
        letter(3, None, key=None),
        NewRecord("grüße\n".encode(), b"k", SPRING),
    )
    return commands


def test_an_export_can_be_read_back_and_is_not_masked(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    ended = shop.run("dlq", "export")
    assert (ended.code, ended.err) == (0, "")
    exported = [read_line(line) for line in ended.out.splitlines()]
    assert exported == [read_dead_letter(message) for message in embedded.read_all(DLQ)]
    assert len(exported) == 4
    assert exported[0].value == b'{"iban": "DE1"}'


def test_a_file_holds_those_that_fulfil_the_condition(shop: Commands) -> None:
    file = shop.directory / "dead.jsonl"
    ended = shop.run("dlq", "export", "-o", str(file), "--where", "reason == 'FATAL'")
    assert (ended.code, ended.out) == (0, "")
    assert re.search(r"\b1 dead letters?\b", ended.err)
    (line,) = file.read_text().splitlines()
    assert read_line(line).value == b"\x00\xff"
    assert [each.name for each in shop.directory.glob("*dead*")] == ["dead.jsonl"]


def test_a_file_that_is_there_is_left_alone(shop: Commands) -> None:
    file = shop.directory / "dead.jsonl"
    file.write_text("mine")
    for name in ("dead.jsonl", "no-such-directory/dead.jsonl"):
        ended = shop.run("dlq", "export", "-o", name)
        assert ended.code == 2
        assert name in ended.err
    assert file.read_text() == "mine"


def test_a_parquet_file_needs_a_name(shop: Commands) -> None:
    ended = shop.run("dlq", "export", "--format", "parquet")
    assert ended.code == 2
    assert "--output" in ended.err


def test_parquet_without_pyarrow_says_what_to_install(shop: Commands) -> None:
    missing = "raise ModuleNotFoundError('No module named pyarrow', name='pyarrow')"
    (shop.directory / "pyarrow.py").write_text(missing)
    ended = shop.run("dlq", "export", "--format", "parquet", "-o", "dead.parquet")
    assert (ended.code, ended.out) == (2, "")
    assert "pip install 'window-consumer[parquet]'" in ended.err
    assert not list(shop.directory.glob("*parquet*"))


def test_a_parquet_file_has_the_bytes_as_they_are(shop: Commands) -> None:
    import pyarrow.parquet  # noqa: PLC0415 - an optional dependency

    ended = shop.run("dlq", "export", "--format", "parquet", "-o", "dead.parquet")
    assert ended.code == 0
    rows = pyarrow.parquet.read_table(shop.directory / "dead.parquet").to_pylist()
    assert [row["value"] for row in rows[:3]] == [b'{"iban": "DE1"}', b"\x00\xff", None]
    assert {"name": "raw", "value": b"\xff"} in rows[0]["headers"]
    assert rows[1]["reason"] == "FATAL"
    assert rows[3]["original_offset"] == 5_000_000_000
    assert rows[0]["last_failure"].tzinfo is not None
