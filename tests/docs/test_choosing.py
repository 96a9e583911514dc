"""The comparison with other queues: our cells name pages and tests, all others their sources."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, missing_tests, numbered_tests, table

PAGE = ROOT / "docs/choosing.md"
TEXT = PAGE.read_text("utf-8")

COLUMNS = """
plain Kafka client
this
RabbitMQ
RocketMQ
Kafka share groups
SQS
Celery
""".strip().splitlines()
ROWS = """
priority
delay
dead letters
retries
push and pull
broadcast
replay
backlog
persistence
trace
audit
filtering
tenants
protocols
languages
flow control
order
security
idempotence
transactions
performance
reliability and availability
operation
ecosystem
""".strip().splitlines()

OURS = re.compile(r"(\[[^\]]+\]\([\w-]+\.md(#[\w-]+)?\)(, )?)+ \((?P<tests>\d+(, \d+)*)\)")
OTHERS = re.compile(r"\[[^\]]+\]\(https://[^\s)]+\)")


def test_the_table_has_all_rows_and_columns() -> None:
    (_, *heads), *rows = table(PAGE, "")
    assert [re.sub(r"( [\d.]+)? \([\d-]+\)$", "", head) for head in heads] == COLUMNS
    assert [row[0].strip("*") for row in rows] == ROWS
    assert {len(row) for row in rows} == {1 + len(COLUMNS)}


def test_the_columns_of_others_say_when_their_documentation_was_read() -> None:
    (_, *heads), *_ = table(PAGE, "")
    for head in heads:
        assert (head == "this") != bool(re.search(r"\(20\d\d-\d\d-\d\d\)$", head)), head


def test_each_cell_of_ours_links_to_a_page_and_names_tests_that_exist() -> None:
    named = set()
    for row in table(PAGE, "")[1:]:
        found = OURS.fullmatch(row[2])
        assert found, row[2]
        named |= {int(number) for number in found["tests"].split(", ")}
    assert named == set(numbered_tests(PAGE))
    assert missing_tests(PAGE) == []


def test_each_cell_about_others_links_to_their_documentation() -> None:
    for row in table(PAGE, "")[1:]:
        for cell in [row[1], *row[3:]]:
            assert OTHERS.fullmatch(cell), cell


@pytest.mark.parametrize(
    "need", ["an AMQP listener", "an MQTT listener", "a STOMP listener", "an XMPP listener"]
)
def test_what_it_does_not_do_names_a_bridge_to_kafka(need: str) -> None:
    (instead,) = [row[1] for row in table(PAGE, "you need ") if row[0] == need]
    assert OTHERS.search(instead)


@pytest.mark.parametrize(
    "term",
    [
        "stop-and-wait",
        "sliding window",
        "token bucket",
        "simple model of a plain loop",
        "one cell one thread",
    ],
)
def test_search_finds_the_words_of_the_field(term: str) -> None:
    assert term in TEXT.lower()


def test_it_is_short_for_a_table_of_seven_columns() -> None:
    assert len(TEXT.split()) <= 2500
