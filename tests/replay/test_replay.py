"""``replay`` on the embedded broker and on Kafka."""

from __future__ import annotations

import pytest

from tests.golden_texts import Golden
from tests.replay.promises import PROMISES, Promise
from tests.replay.shop import ReplayShop, at


@pytest.mark.parametrize("promise", PROMISES, ids=lambda each: each.__name__)
def test_on_the_embedded_broker(promise: Promise, shop: ReplayShop) -> None:
    promise(shop)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda each: each.__name__)
def test_on_kafka(promise: Promise, kafka_shop: ReplayShop) -> None:
    promise(kafka_shop)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--from"),
        (("--from", "yesterday"), "yesterday"),
        (("--from", "1h", "--from-offset", "0:1"), "exclusive"),
        (("--from", at(5), "--to", at(5)), "empty"),
        (("--from", at(5), "--to", at(4)), "empty"),
        (("--to", at(4)), "--from"),
        (("--ids", "none"), "none"),
        (("--from-offset", "0:-1"), "0:-1"),
        (("--from-offset", "7"), "7"),
        (("--from-offset", "0:1", "--from-offset", "0:2"), "partition 0"),
        (("--from-offset", "5:1"), "partition 5"),
        (("--from-offset", "0:3"), "empty"),
        (("--from", "2100-01-01"), "empty"),
        (("--from", at(0), "--worker", "unknown"), "unknown"),
        (("--from", at(0), "--topic", "unknown"), "unknown"),
        (("--from", at(0), "--rate", "0/s"), "0/s"),
        (("--from", at(0), "--rate", "5/day"), "5/day"),
        (("--from", at(0), "--where", "keys == 1"), "keys"),
    ],
)
def test_what_cannot_be_done_is_exit_2_and_says_why(
    options: tuple[str, ...], said: str, shop: ReplayShop
) -> None:
    shop.produce(3)
    ended = shop.run(*options)
    assert ended.code == 2, ended.said
    assert said in ended.err
    assert not shop.copies()


def test_a_topic_that_does_not_exist_is_exit_2(shop: ReplayShop, golden: Golden) -> None:
    shop.source = "other"
    shop.configure()
    ended = shop.run("--from", "1h")
    assert ended.code == 2
    golden(ended.err)
