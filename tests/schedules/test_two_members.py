"""Two members on a real Kafka: one owner at a time, also when it is killed."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.commands import DEADLINE_S, Commands
from tests.conftest import MakeTopic
from tests.delay.service import DelayService
from tests.integration.conftest import PROTOCOLS, protocol_settings
from tests.integration.members import SHORT_MS, set_session
from tests.schedules.conftest import SECONDLY
from tests.schedules.test_schedules_run import seconds, ticks
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_other_member_goes_on_behind_the_last_tick_of_a_killed_one(
    protocol: str,
    kafka: RealKafka,
    commands: Commands,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
) -> None:
    topic, target = unique_name("shop.later"), make_topic("reports", 2)
    consumer = protocol_settings(protocol, may_die=True)
    settings = {"bootstrap.servers": kafka.bootstrap, "consumer": consumer}
    schedules = {"secondly": {**SECONDLY, "to": target}}
    service = DelayService(settings, commands, topic, {"schedules": schedules})
    set_session(kafka.bootstrap, topic, SHORT_MS)
    service.configure(partitions=2)
    first = service.start()
    first.wait_for_event(LogEvent.SCHEDULES_OWNED)
    second = service.start()
    ticks(service, 3, target)
    owner, other = first, second
    if second.lines_of(LogEvent.SCHEDULES_OWNED):
        owner, other = second, first
    owned = len(other.lines_of(LogEvent.SCHEDULES_OWNED))
    owner.signal(signal.SIGKILL)
    owner.process.wait(DEADLINE_S)
    other.wait_for_event(LogEvent.SCHEDULES_OWNED, times=owned + 1)
    found = seconds(ticks(service, 10, target))
    assert sorted(set(found)) == list(range(max(found) + 1))
    assert len(found) - len(set(found)) <= 2  # one that was on its way when the owner changed
    assert other.stop().code == 0
