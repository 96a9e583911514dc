from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests import reading
from tests.golden_texts import Golden
from tests.integration.access import Access
from tests.waiting import wait_until
from window_consumer.model.errors import MissingTopicError, NotPermittedError, RunError
from window_consumer.testing.real_kafka import RealKafka
from window_consumer.testing.real_kafka_jars import (
    archive_of,
    default_directory,
    fetch_jars,
    find_java,
)
from window_consumer.testing.real_kafka_settings import Settings, free_addresses

pytestmark = pytest.mark.kafka

ConsumerOf = Callable[..., AbstractContextManager[Consumer]]
MakeTopic = Callable[..., str]


@pytest.fixture(scope="module")
def own(kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """One that tests may stop. It depends on ``kafka`` to be skipped where there is none.

    The first address that it tries is taken: starts are slow, and this one shows two things.
    """
    assert kafka.bootstrap
    settings: Settings = {"offset.metadata.max.bytes": 100, "auto.create.topics.enable": "true"}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = [f"127.0.0.1:{taken.getsockname()[1]}", *free_addresses(2)]
        offers = iter([first, free_addresses(3)])
        place = tmp_path_factory.mktemp("own")
        started = RealKafka.start(place, settings, addresses=lambda _: next(offers))
    with started:
        yield started


def plain(kafka: RealKafka) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap}


def write(kafka: RealKafka, topic: str, value: bytes) -> KafkaError | None:
    outcome: list[KafkaError | None] = []
    producer = Producer({**plain(kafka), "log_level": 0})
    producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error))
    producer.flush(30)
    return outcome[0]


def values(kafka: RealKafka, topic: str) -> list[bytes | None]:
    return [record.value() for record in reading.read_all(plain(kafka), topic)]


def answers(kafka: RealKafka, timeout_s: float) -> bool:
    try:
        AdminClient({**plain(kafka), "log_level": 0}).list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return True


# ---- what it is


def test_records_are_kept(kafka: RealKafka, make_topic: MakeTopic) -> None:
    topic = make_topic("orders", 3)
    assert write(kafka, topic, b"v") is None
    assert values(kafka, topic) == [b"v"]
    ends = [span.end for span in reading.spans(plain(kafka), topic).values()]
    assert sorted(ends) == [0, 0, 1]


def test_a_topic_can_have_settings_of_its_own(kafka: RealKafka, make_topic: MakeTopic) -> None:
    topic = make_topic("orders", 1, {"max.message.bytes": "10000"})
    error = write(kafka, topic, b"x" * 20_000)
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_topics_do_not_come_by_themselves(
    kafka: RealKafka, unique_name: Callable[[str], str]
) -> None:
    with pytest.raises(MissingTopicError):
        reading.read_all(plain(kafka), unique_name("nowhere"))


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_both_group_protocols_work(
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    consumer_of: ConsumerOf,
    protocol: str,
) -> None:
    topic = make_topic("orders")
    write(kafka, topic, b"v")
    group = {"group.id": unique_name("group"), "group.protocol": protocol}
    with consumer_of(plain(kafka), **group) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"v"


# ---- users


def test_admin_may_do_everything(kafka: RealKafka, make_topic: MakeTopic) -> None:
    topic = make_topic("orders")
    write(kafka, topic, b"v")
    assert len(reading.read_all(kafka.sasl_settings("admin"), topic)) == 1


def test_a_wrong_password_is_refused(kafka: RealKafka) -> None:
    refusals: list[KafkaError] = []
    settings: dict[str, Any] = {**kafka.sasl_settings("admin"), "log_level": 0}
    settings |= {"sasl.password": "wrong", "error_cb": refusals.append}
    admin = AdminClient(settings)
    while not refusals:
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.2)
        admin.poll(0)
    assert KafkaError._AUTHENTICATION in {error.code() for error in refusals}


def test_a_user_may_do_what_an_acl_allows_and_nothing_else(
    kafka: RealKafka, make_topic: MakeTopic
) -> None:
    topic = make_topic("orders")
    write(kafka, topic, b"v")
    for user in ("alice", "bob"):
        with pytest.raises(NotPermittedError):
            reading.read_all(kafka.sasl_settings(user), topic)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    Access(admin, "alice").grant("topic", topic, "READ")
    assert len(reading.read_all(kafka.sasl_settings("alice"), topic)) == 1
    with pytest.raises(NotPermittedError):
        reading.read_all(kafka.sasl_settings("bob"), topic)


# ---- up and down


def test_settings_of_ones_own_win(own: RealKafka) -> None:
    assert write(own, "made-at-first-use", b"v") is None
    assert "offset.metadata.max.bytes=100" in (own.log.parent / "server.properties").read_text()


def test_address_and_data_outlive_a_restart(own: RealKafka) -> None:
    write(own, "restarted", b"before")
    address, pid = own.bootstrap, own.pid
    own.restart()
    assert (own.bootstrap, own.pid != pid) == (address, True)
    assert write(own, "restarted", b"after") is None
    assert values(own, "restarted") == [b"before", b"after"]


def test_a_kafka_that_was_killed_can_be_started_again(own: RealKafka) -> None:
    write(own, "killed", b"v")
    own.kill()
    assert own.pid is None
    assert not answers(own, timeout_s=0.5)
    own.kill()
    own.restart()
    # A broker that was killed finds out how far its log was committed, and tells less until then.
    wait_until(lambda: bool(values(own, "killed")), 60, "the log is there")
    assert values(own, "killed") == [b"v"]


def test_a_paused_kafka_answers_when_it_is_resumed(own: RealKafka) -> None:
    assert answers(own, timeout_s=30)
    own.pause()
    try:
        assert states(own) == {"T"}
        assert not answers(own, timeout_s=0.5)
    finally:
        own.resume()
    assert answers(own, timeout_s=30)


def states(kafka: RealKafka) -> set[str]:
    """Return the states of all of Kafka's threads, as Linux tells them."""
    threads = Path(f"/proc/{kafka.pid}/task").glob("*/stat")
    return {thread.read_text().rpartition(")")[2].split()[0] for thread in threads}


def test_a_kafka_that_was_stopped_while_it_was_paused_can_be_started_again(
    own: RealKafka, golden: Golden
) -> None:
    write(own, "stopped", b"v")
    own.pause()
    own.stop()
    assert own.pid is None
    assert not answers(own, timeout_s=0.5)
    with golden.raises(RunError):
        own.pause()
    own.stop()
    own.restart()
    assert values(own, "stopped") == [b"v"]


def test_a_start_that_fails_shows_what_kafka_said(own: RealKafka, tmp_path: Path) -> None:
    assert own.pid is not None
    with pytest.raises(RunError, match=r"(?s)kafka\.log.*ConfigException"):
        RealKafka.start(tmp_path / "format", {"node.id": "one"})
    with pytest.raises(RunError, match=r"(?s)\bcode 1\b.*kafka\.log.*no\.such\.Class"):
        RealKafka.start(tmp_path / "run", {"authorizer.class.name": "no.such.Class"})


def test_its_classes_are_those_of_the_archive(own: RealKafka) -> None:
    archive = archive_of(fetch_jars(default_directory().resolve()), find_java())
    if not archive.is_file():
        pytest.skip("there is no archive of Kafka's classes")
    assert str(archive) in Path(f"/proc/{own.pid}/maps").read_text()


def test_a_taken_port_is_no_hindrance(own: RealKafka) -> None:
    places = {place.name for place in own.log.parents[1].iterdir()}
    assert places == {"kafka-1", "kafka-2"}
    assert own.log.parent.name == "kafka-2"
    assert answers(own, timeout_s=30)


STARTER = """
import os, signal, sys
from pathlib import Path
from window_consumer.testing.real_kafka import RealKafka
from window_consumer.testing.real_kafka_jars import (
    archive_of,
    default_directory,
    fetch_jars,
    find_java,
)
from window_consumer.testing.real_kafka_settings import Settings, free_addresses
print(RealKafka.start(Path(sys.argv[1])).pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kafka_dies_with_the_process_that_started_it(own: RealKafka, tmp_path: Path) -> None:
    assert own.pid is not None
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        ended, _, _ = select.select([process], [], [], 30)
        os.close(process)
    assert starter.returncode == -signal.SIGKILL
    assert ended
