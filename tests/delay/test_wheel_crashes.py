"""A wheel whose process is killed at any step loses nothing, and is never early, by any clock."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.delay import wheel_mutants as mutants
from tests.delay.wheel_world import Killed, Parts, Process, World
from tests.logged import events_in
from window_consumer.model.log_events import LogEvent

EXAMPLES = 40
MUTANTS_EXAMPLES = 1200
HOSTS = ("one", "two")
FARTHEST_MS = 4000
AHEAD_S = 3.0
"""How far clocks are wrong at most."""


class KilledWheel(RuleBasedStateMachine):
    """Records come, time passes, processes end in good order or with kills, on two hosts."""

    parts = Parts()

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.parts)
        self.process: Process | None = None
        self.folder = tempfile.TemporaryDirectory()

    @rule(left_ms=st.lists(st.integers(-300, FARTHEST_MS), min_size=1, max_size=6))
    def write(self, left_ms: list[int]) -> None:
        for each in left_ms:
            self.world.write(each)

    @rule(back=st.integers(1, 8))
    def cancel(self, back: int) -> None:
        if back <= len(self.world.log):
            self.world.cancel(len(self.world.log) - back)

    @rule(
        seconds=st.floats(0.0, 0.6),
        fuse=st.none() | st.integers(0, 14),
        host=st.sampled_from(HOSTS),
        answer=st.sampled_from(["taken", "taken", "refused", "none"]),
    )
    def run(self, seconds: float, fuse: int | None, host: str, answer: str) -> None:
        """Let a process run for a moment: the last one, else a new one on this host."""
        self.world.fuse = fuse
        try:
            self.process = self.process or Process(self.world, Path(self.folder.name, host))
            self.process.advance(seconds)
            if answer != "none":
                self.process.sink.answer(refused=answer == "refused")
        except Killed:
            self.end()
        self.world.fuse = None

    @rule(seconds=st.sampled_from([0.0, 0.0, 0.4, AHEAD_S, -AHEAD_S]))
    def set_clock(self, seconds: float) -> None:
        """Let the clocks of the hosts jump: it is ahead of the senders' by so much then."""
        self.world.clock_ahead_s = seconds

    @rule(fuse=st.none() | st.integers(0, 5))
    def stop(self, fuse: int | None) -> None:
        self.world.fuse = fuse
        with suppress(Killed):
            if self.process is not None:
                self.process.stop()
        self.end()

    @rule()
    def end(self) -> None:
        """Kill the process: nothing but files is left. The system closes them, and ends locks."""
        self.world.fuse, self.process = None, None
        if self.world.wheels is not None:
            self.world.wheels.clear()

    def teardown(self) -> None:
        """Let a last process run until all is due."""
        self.world.clock_ahead_s = AHEAD_S
        try:
            last = self.process or Process(self.world, Path(self.folder.name, HOSTS[0]))
            for _ in range(FARTHEST_MS // 100 + 20):
                last.advance(0.1)
                last.sink.answer()
            last.advance(1.0)
            self.world.judge()
        finally:
            self.end()
            self.folder.cleanup()


RULES = settings(
    derandomize=True,
    database=None,
    deadline=None,
    stateful_step_count=40,
    max_examples=EXAMPLES,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


def test_kills_at_any_step_lose_nothing() -> None:
    run_state_machine_as_test(KilledWheel, settings=RULES)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (Parts(guarantee=mutants.CommitsPastWhatWaits), "lost"),
        (Parts(guarantee=mutants.FiresWithoutAcks), "lost"),
        (Parts(guarantee=mutants.CountsWhatIsInFlight), "lost"),
        (Parts(wheels=mutants.CountsAsDoneWhenSent), "lost"),
        (Parts(wheels=mutants.DropsWhatIsRefused), "lost"),
        (Parts(wheels=mutants.FiresEarly), "early"),
        (Parts(wheels=mutants.IgnoresCancellations), "cancelled"),
        (Parts(preparation=mutants.ReadsNothingFromKafka), "lost"),
        (Parts(folder=mutants.RecordsBeforeItWrites), "lost"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.planted,
)
def test_a_bug_planted_in_the_wheel_is_found(parts: Parts, expected: str) -> None:
    class Mutant(KilledWheel):
        """With the bug."""

    Mutant.parts = parts
    search = settings(RULES, max_examples=MUTANTS_EXAMPLES, phases=[Phase.generate])
    with pytest.raises(AssertionError, match=expected):
        run_state_machine_as_test(Mutant, settings=search)


@pytest.mark.parametrize("head", [b"wcs\x02", b"wcs\x00", b"none", b"w"], ids=repr)
def test_files_in_another_format_are_read_from_kafka_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, head: bytes
) -> None:
    world = World(Parts())
    try:
        for left_ms in (500, 2500, 2600):
            world.write(left_ms)
        process = Process(world, tmp_path)
        for _ in range(20):
            process.advance(0.1)
            process.sink.answer()
        assert world.delivered == {0: 1}
        waits = max(tmp_path.glob("*/*.slot"))
        whole = waits.read_bytes()
        waits.write_bytes(head + whole[4:] if len(head) == 4 else head)
        assert world.wheels is not None
        world.wheels.clear()
        caplog.set_level("INFO")
        process = Process(world, tmp_path)
        assert events_in(caplog) == [LogEvent.WHEEL_DISCARDED, LogEvent.WHEEL_READ]
        for _ in range(20):
            process.advance(0.1)
            process.sink.answer()
        world.judge()
        assert world.delivered == {0: 1, 1: 1, 2: 1}
    finally:
        assert world.wheels is not None
        world.wheels.clear()
