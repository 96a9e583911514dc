"""A member that loses its partitions and gets them back: what had finished does not run again."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.conftest import MakeTopic
from tests.integration.conftest import protocol_settings
from tests.integration.members import Members, produce
from tests.waiting import wait_until
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.events import Started
from window_consumer.testing.real_kafka import RealKafka

RECORDS = 20_000
WAIT_S = 60


def test_what_had_finished_when_the_session_timed_out_is_not_handled_again(
    kafka: RealKafka, make_topic: MakeTopic, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    worker = {
        "ordering": "unordered",
        "concurrency": 4,
        "retry": {"on_failure": "overtake"},
        # After the one at the beginning none is due before the member is frozen.
        "commit_interval": "20s",
        "kafka": {
            "consumer": {**protocol_settings("classic", may_die=True), "session.timeout.ms": 3000}
        },
    }
    topic = make_topic("members", 2)
    members = Members(kafka.bootstrap, topic, unique_name("members"), tmp_path, worker, 0.0001)
    try:
        member = members.start()
        wait_until(
            lambda: member.has(LogEvent.PARTITIONS_ASSIGNED, partitions=2), WAIT_S, "it reads"
        )
        produce(kafka.bootstrap, topic, RECORDS, 200)
        wait_until(lambda: members.calls() >= RECORDS // 2, WAIT_S, "half of them have finished")
        member.process.send_signal(signal.SIGSTOP)
        watched = unowned(members)
        wait_until(watched, WAIT_S, "its session is over")
        member.process.send_signal(signal.SIGCONT)
        wait_until(lambda: member.has(LogEvent.PARTITION_REGAINED), WAIT_S, "they come back")
        wait_until(members.all_committed, WAIT_S, "all is committed")
        assert members.stop_all() == [0]
    finally:
        members.kill_all()
    calls = Counter(
        (each.partition, each.offset) for each in member.events() if isinstance(each, Started)
    )
    assert len(calls) == RECORDS
    assert sum(calls.values()) - RECORDS < 500


def unowned(members: Members) -> Callable[[], bool]:
    """Return what tells whether the group has no member any more."""
    admin = AdminClient({"bootstrap.servers": members.bootstrap})

    def so() -> bool:
        found = admin.describe_consumer_groups([members.group])[members.group].result(10)
        return not found.members

    return so
