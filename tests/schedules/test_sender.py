"""Ticks are acked before they are kept, one schedule does not wait for another, and outages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import define, field

from window_consumer.config import Config
from window_consumer.model.protocols import Copy
from window_consumer.schedules.config import Missed, ScheduleConfig
from window_consumer.schedules.pause_rule import UnsentTicksRule
from window_consumer.schedules.schedule import Schedule, last_ticks, text_of
from window_consumer.schedules.sender import TickSender
from window_consumer.testing.clock import ManualClock
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.sink import FakeSink, Fate

KEPT = "wc.delay.schedules"
BEGIN = datetime(2026, 11, 27, 1, 0, 30, tzinfo=UTC)


def schedule(**keys: str) -> ScheduleConfig:
    return ScheduleConfig(**{"cron": "* * * * *", "to": "reports", **keys})  # type: ignore[arg-type] # its keys


@define
class World:
    """Schedules on a fake broker, with a clock that only the test moves."""

    schedules: dict[str, ScheduleConfig]
    broker: FakeBroker = field(factory=lambda: FakeBroker("test"))
    clock: ManualClock = field(factory=lambda: ManualClock(1.0, round(BEGIN.timestamp() * 1000)))
    refused: set[str] = field(factory=set)
    """Topics that give no answer."""
    runs: TickSender = field(init=False)
    sink: FakeSink = field(init=False)

    def __attrs_post_init__(self) -> None:
        for name in (KEPT, "reports", "mails"):
            self.broker.create_topic(name, 1)
        self.begin()

    def begin(self) -> None:
        """Begin as a new owner, after a crash of the last one."""
        self.sink = FakeSink(
            self.broker.topics, lambda copy: Fate.LOST if copy.topic in self.refused else Fate.ACKED
        )
        features: dict[type, Any] = {ScheduleConfig: self.schedules}
        config = Config(workers={}, features=features)
        self.runs = TickSender(Schedule.all_of(config), KEPT, self.sink)
        self.runs.begin(last_ticks(self.broker.log(KEPT, 0).messages), self.clock.wall_ms())
        self.settle()

    def settle(self, answers: int | None = None) -> None:
        for _ in range(1000):
            wrote = self.runs.advance(self.clock.now(), self.clock.wall_ms())
            if not wrote and not self.sink.unanswered:
                return
            self.sink.serve(at_most=answers)
            if answers is not None:
                return

    def pass_time(self, seconds: float) -> None:
        """Let time pass as a running owner sees it."""
        end = self.clock.now() + seconds
        while (left_s := end - self.clock.now()) > 0:
            wait_s = self.runs.wait_s(self.clock.now(), self.clock.wall_ms(), left_s)
            self.clock.advance(max(wait_s, 0.001))
            self.settle()

    def ids(self, topic: str = "reports") -> list[str]:
        found = [dict(each.headers() or ())["wc-id"] for each in self.broker.log(topic, 0).messages]
        return [(each or b"").decode().removeprefix("schedule/") for each in found]


def minutes(*numbers: int, name: str = "job") -> list[str]:
    return [f"{name}/2026-11-27T01:{number:02}:00Z" for number in numbers]


def test_a_tick_has_the_id_of_its_time_in_utc_and_what_the_schedule_says() -> None:
    job = schedule(cron="2 2 * * *", timezone="Europe/Berlin", key="k", value='{"a": 1}')
    world = World({"job": job})
    world.pass_time(120)
    (record,) = world.broker.log("reports", 0).messages
    assert (record.key(), record.value()) == (b"k", b'{"a": 1}')
    assert record.headers() == [("wc-id", b"schedule/job/2026-11-27T01:02:00Z")]


def test_each_tick_is_sent_once_while_one_process_runs() -> None:
    world = World({"job": schedule()})
    world.pass_time(180)
    assert world.ids() == minutes(1, 2, 3)
    assert world.runs.figures().sent == 3


def test_a_new_schedule_has_missed_nothing_and_its_first_outage_counts() -> None:
    world = World({"job": schedule(missed="all")})
    assert world.ids() == []
    world.clock.advance(120)  # nobody runs it
    world.begin()
    assert world.ids() == minutes(1, 2)


@pytest.mark.parametrize(
    ("missed", "sent"), [("last", [7]), ("all", [1, 2, 3, 4, 5, 6, 7]), ("none", [7])]
)
def test_after_an_outage_the_ticks_of_missed_are_sent(missed: Missed, sent: list[int]) -> None:
    world = World({"job": schedule(missed=missed)})
    world.clock.advance(7 * 60)
    world.begin()
    assert world.ids() == minutes(*sent)
    world.pass_time(60)
    assert world.ids() == minutes(*sent, 8)


def test_with_missed_none_a_tick_that_is_late_by_more_than_a_minute_is_left_out() -> None:
    world = World({"job": schedule(cron="5 * * * *", missed="none")})
    world.clock.advance(7 * 60)
    world.begin()
    assert world.ids() == []
    assert last_ticks(world.broker.log(KEPT, 0).messages)["job"].tick.minute == 5


def test_a_long_outage_is_made_up_in_parts() -> None:
    world = World({"job": schedule(cron="* * * * * *", missed="all")})
    world.clock.advance(1000)
    world.begin()
    world.settle()
    assert len(world.ids()) == len(set(world.ids())) == 1000


@pytest.mark.parametrize("change", [{"cron": "*/2 * * * *"}, {"timezone": "Europe/Berlin"}])
def test_a_schedule_with_another_expression_or_time_zone_is_new(change: dict[str, str]) -> None:
    world = World({"job": schedule(missed="all")})
    world.clock.advance(300)
    world.schedules["job"] = schedule(missed="all", **change)
    world.begin()
    assert world.ids() == []
    world.pass_time(120)
    assert len(world.ids()) == (1 if "cron" in change else 2)


@pytest.mark.parametrize("acked", [0, 1])
def test_a_crash_between_tick_and_note_repeats_the_tick_and_loses_none(acked: int) -> None:
    world = World({"job": schedule()})
    world.clock.advance(31)
    world.settle(answers=acked)
    world.begin()
    assert world.ids() == minutes(*[1] * (acked + 1))
    world.pass_time(60)
    assert world.ids()[-1:] == minutes(2)


def test_a_topic_without_an_answer_holds_up_no_other_schedule() -> None:
    world = World({"mail": schedule(to="mails"), "job": schedule()})
    world.refused.add("mails")
    world.pass_time(180)
    assert world.ids() == minutes(1, 2, 3)
    assert world.ids("mails") == []
    assert world.runs.figures().failing == 1
    assert [(e.schedule, e.topic) for e in world.runs.unsent()] == [("mail", "mails")]
    (finding,) = UnsentTicksRule(world.runs.unsent).findings()
    assert (finding.kind, finding.pauses) == ("tick_refused", False)
    assert finding.figures == {"schedule": "mail", "topic": "mails"}
    world.refused.clear()
    world.pass_time(60)
    assert list(world.runs.unsent()) == []
    assert world.ids("mails")[-1:] == minutes(4, name="mail")
    assert world.runs.figures().failing == 0


def test_a_note_without_an_answer_is_written_again_without_the_tick() -> None:
    world = World({"job": schedule()})
    world.refused.add(KEPT)
    world.pass_time(31)
    assert [each.topic for each in world.runs.unsent()] == [KEPT]
    world.refused.clear()
    world.pass_time(5)
    assert world.ids() == minutes(1)
    assert last_ticks(world.broker.log(KEPT, 0).messages)["job"].tick.minute == 1


def test_after_its_end_nothing_is_sent_or_kept() -> None:
    world = World({"job": schedule()})
    world.clock.advance(31)
    world.runs.advance(world.clock.now(), world.clock.wall_ms())
    world.runs.end()
    kept = len(world.broker.log(KEPT, 0).messages)
    world.settle()
    world.pass_time(120)
    assert world.ids() == minutes(1)  # it was on its way
    assert len(world.broker.log(KEPT, 0).messages) == kept


def test_of_notes_in_any_order_the_newest_tick_counts_and_unreadable_ones_do_not() -> None:
    world = World({"job": schedule()})
    world.pass_time(120)
    notes = list(world.broker.log(KEPT, 0).messages)
    world.sink.write(Copy(KEPT, 0, b"job", b"not JSON", ()), lambda _error: None)
    world.sink.serve()
    assert last_ticks([notes[-1], notes[0]])["job"].tick.minute == 2
    assert last_ticks(world.broker.log(KEPT, 0).messages) == last_ticks(notes)


def test_a_clock_that_is_set_back_repeats_nothing() -> None:
    world = World({"job": schedule()})
    world.pass_time(120)
    world.clock.set_wall(round(BEGIN.timestamp() * 1000))
    world.pass_time(60)
    assert world.ids() == minutes(1, 2)
    assert text_of(BEGIN) == "2026-11-27T01:00:30Z"
