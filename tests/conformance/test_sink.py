"""What a Sink does with copies."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.conformance.conftest import Full, Quiet
from tests.conformance.stages import DEADLINE_S, Stage
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Copy, Headers, Sink
from window_consumer.testing.fakes.topics import partition_of


class Answers:
    """What a Sink says, in the order in which it was said."""

    def __init__(self, sink: Sink):
        self.sink = sink
        self.given: list[tuple[object, PublishFailedError | None]] = []

    def write(self, what: object, copy: Copy) -> None:
        self.sink.write(copy, lambda error: self.given.append((what, error)))

    def until(self, what: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not what():
            assert time.monotonic() < deadline, f"it did not happen: {self.given}"
            self.sink.serve(0.02)

    def of(self, copy: Copy) -> PublishFailedError | None:
        """Write a copy and return its only answer."""
        self.write(copy, copy)
        self.until(lambda: self.given)
        assert self.sink.close(DEADLINE_S) == 0
        ((_, error),) = self.given
        return error


def copy(
    topic: str,
    value: bytes | None = b"v",
    key: bytes | None = None,
    partition: int | None = 0,
    headers: Headers = (),
) -> Copy:
    return Copy(topic, partition, key, value, headers)


def test_a_copy_is_acked_in_serve_and_is_there_then(stage: Stage) -> None:
    topic = stage.topic(3)
    answers = Answers(stage.sink())
    answers.write("it", copy(topic, partition=2))
    assert answers.given == []
    answers.until(lambda: answers.given)
    assert answers.given == [("it", None)]
    assert [(m.partition(), m.value()) for m in stage.read(topic)] == [(2, b"v")]


def test_key_value_and_headers_are_kept_byte_for_byte(stage: Stage) -> None:
    topic = stage.topic()
    headers = [("trace", b"1"), ("trace", b"\x00\xff"), ("none", None), ("\u00fcber", b"")]
    answers = Answers(stage.sink())
    for key, value in ((b"\x00\xff", b"\xff\x00"), (b"", b""), (None, None)):
        answers.write(key, copy(topic, value, key, headers=headers))
    answers.write("no headers", copy(topic))
    answers.until(lambda: len(answers.given) == 4)
    found = [(m.key(), m.value(), m.headers()) for m in stage.read(topic)]
    assert found == [
        (b"\x00\xff", b"\xff\x00", headers),
        (b"", b"", headers),
        (None, None, headers),
        (None, b"v", None),
    ]


def test_every_copy_has_one_answer_and_the_order_of_a_partition_is_kept(stage: Stage) -> None:
    topic = stage.topic(2)
    answers = Answers(stage.sink())
    for number in range(2_000):
        answers.write(number, copy(topic, b"%d" % number, partition=number % 2))
    answers.until(lambda: len(answers.given) >= 2_000)
    assert answers.sink.close(DEADLINE_S) == 0
    assert sorted(answers.given) == [(number, None) for number in range(2_000)]
    values = [m.value() for m in stage.read(topic)]
    assert values == [b"%d" % number for start in (0, 1) for number in range(start, 2_000, 2)]


def test_a_key_goes_where_javas_producers_put_it(stage: Stage) -> None:
    topic = stage.topic(7)
    answers = Answers(stage.sink())
    keys = [f"key-{number}".encode() * (number % 4 + 1) for number in range(100)]
    keys += [b"", *(bytes(range(255, 255 - length, -1)) for length in range(1, 10))]
    for key in keys:
        answers.write(key, copy(topic, key=key, partition=None))
    answers.until(lambda: len(answers.given) == len(keys))
    places = {m.key(): m.partition() for m in stage.read(topic)}
    assert places == {key: partition_of(key, 7) for key in keys}
    assert set(places.values()) == set(range(7))


@pytest.mark.parametrize(
    ("key", "hashed"),
    # Values that Kafka's own tests expect of org.apache.kafka.common.utils.Utils.murmur2.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        # What it says of keys whose bytes are negative in Java, of every length beyond a word.
        (b"", 275646681),
        (b"\xff", -311467685),
        (b"\x80\xff", -80095470),
        (b"\xff\x80\xfe", 957058525),
        (b"\xff\xfe\xfd\xfc", 2136149935),
        (b"\xff" * 7, -71293549),
        (b"\x7f\xff" * 4 + b"\x7f", -161882274),
    ],
)
def test_the_suites_own_partitioner_is_javas(key: bytes, hashed: int) -> None:
    assert partition_of(key, 1_000_003) == (hashed & 0x7FFFFFFF) % 1_000_003


def test_a_copy_without_a_key_goes_anywhere(stage: Stage) -> None:
    topic = stage.topic(2)
    answers = Answers(stage.sink())
    assert answers.of(copy(topic, partition=None)) is None
    assert len(stage.read(topic)) == 1


def test_a_copy_that_is_too_large_is_refused_and_the_reason_is_reported(full: Full) -> None:
    topic = full.topic(config={"max.message.bytes": "10000"})
    error = Answers(full.sink()).of(copy(topic, b"x" * 20_000))
    assert error is not None
    assert error.too_large
    assert full.read(topic) == []
    assert Answers(full.sink()).of(copy(topic, b"x" * 8_000)) is None


def test_a_copy_to_a_topic_that_is_not_there_fails(full: Full) -> None:
    quick = {"topic.metadata.propagation.max.ms": 100}
    error = Answers(full.sink(**quick)).of(copy(full.unique_name("nowhere")))
    assert error is not None
    assert not error.too_large


def test_a_copy_to_a_partition_that_is_not_there_fails(full: Full) -> None:
    topic = full.topic(2)
    quick = {"topic.metadata.propagation.max.ms": 100}
    error = Answers(full.sink(**quick)).of(copy(topic, partition=2))
    assert error is not None
    assert not error.too_large


def test_closing_waits_for_the_answers(stage: Stage) -> None:
    topic = stage.topic()
    answers = Answers(stage.sink(**{"linger.ms": 500}))
    for number in range(100):
        answers.write(number, copy(topic))
    assert answers.sink.close(DEADLINE_S) == 0
    assert answers.given == [(number, None) for number in range(100)]


def test_a_sink_that_has_written_nothing_closes_at_once(stage: Stage) -> None:
    assert stage.sink().close(DEADLINE_S) == 0


@pytest.mark.parametrize("quiet", ["embedded"], indirect=True)
def test_a_silent_broker_leaves_copies_unanswered(quiet: Quiet) -> None:
    topic = quiet.topic()
    answers = Answers(quiet.sink())
    answers.write("before", copy(topic))
    answers.until(lambda: answers.given)
    with quiet.silence():
        answers.write("later", copy(topic))
        assert answers.sink.close(0.2) == 1
        assert answers.given == [("before", None)]
    answers.until(lambda: len(answers.given) == 2)
    assert answers.given[1] == ("later", None)
