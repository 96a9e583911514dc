"""The tutorial: each step is followed from its page, in the project that the steps before made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.commands import DEADLINE_S
from tests.docs.pages import all_blocks, word_count
from tests.docs.walkthrough import Reader, in_order
from window_consumer.testing.real_kafka import RealKafka

PAGES = in_order("tutorial")
FIRST, *OTHERS, LAST = PAGES
TOPICS = ("orders", "invoices")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    (tmp_path / "logs").mkdir()
    with Reader(tmp_path, tmp_path / "logs") as reader:
        yield reader


def reach(reader: Reader, page: Path) -> None:
    """Make the project as it is when a page begins."""
    reader.type("window-consumer init shop", [])
    reader.type("cd shop", [])
    for earlier in PAGES[: PAGES.index(page)]:
        for block in all_blocks(earlier):
            if block.file is not None:
                reader.write(block)


def test_the_first_step_works_from_an_empty_folder(reader: Reader) -> None:
    reader.follow(FIRST)


@pytest.mark.parametrize("page", OTHERS, ids=[page.stem for page in OTHERS])
def test_a_step_works_after_those_before_it(page: Path, reader: Reader) -> None:
    reach(reader, page)
    reader.follow(page)


@pytest.fixture
def cluster(kafka: RealKafka) -> Iterator[RealKafka]:
    """What the last step's commands with docker leave; nothing of it is there for other tests."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topics.make(admin, *(NewTopic(name, num_partitions=4) for name in TOPICS))
    yield kafka
    for name in admin.list_topics(timeout=DEADLINE_S).topics:
        if name in TOPICS or name.startswith("shop-"):
            topics.delete(admin, name)


def test_the_last_step_works_with_a_real_kafka(cluster: RealKafka, reader: Reader) -> None:
    reach(reader, LAST)
    reader.changes = {**reader.changes, "127.0.0.1:9092": cluster.bootstrap}
    reader.follow(LAST)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_step_is_short(page: Path) -> None:
    assert word_count(page) <= 900
