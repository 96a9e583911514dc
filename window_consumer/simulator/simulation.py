"""One simulation: the members of a group, the broker, and everything that may happen to them."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from random import Random

from window_consumer.engine.engine import Engine
from window_consumer.model.protocols import Clock
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.freeze_detector import FREEZE_S
from window_consumer.runtime.mailbox import MailboxRequest
from window_consumer.runtime.topic_watch import TopicNews
from window_consumer.simulator.copy_processes.redrives import Redrives
from window_consumer.simulator.copy_processes.replays import Replays
from window_consumer.simulator.fault_plan import FaultPlan
from window_consumer.simulator.member import SimulatedMember
from window_consumer.simulator.schedule import GROUP, RESULT_TOPICS, Action, SchedulePlan
from window_consumer.simulator.shared import SharedSimulation
from window_consumer.simulator.source_logs import SourceLogs
from window_consumer.simulator.system_under_test import SystemUnderTest
from window_consumer.simulator.watches.limits import check_bounds
from window_consumer.testing.fakes.source import FakeSource


class Simulation:
    """The world of one schedule. Owner: one thread."""

    def __init__(
        self, plan: SchedulePlan, rng: Random, subject: SystemUnderTest, fault_plan: FaultPlan
    ):
        self.plan = plan
        self.rng = rng
        self.scene = scene = SharedSimulation(plan, rng, subject)
        self.clock, self.broker, self.history = scene.clock, scene.broker, scene.history
        self.fault_plan = fault_plan
        fault_plan.wall_ms = self.clock.wall_ms
        self.members: list[SimulatedMember] = []
        self.unnoticed: list[FakeSource] = []
        """Killed members that the group still counts."""
        self.logs = SourceLogs(scene)
        self.redrives = Redrives(scene, fault_plan, self._meanwhile)
        self.replays = Replays(scene, fault_plan, self._meanwhile)
        self._born = 0
        self._most_members = plan.members
        self._actions: dict[Action, Callable[[], None]] = {
            "turn": self._turn,
            "work": self._work,
            "produce": self.logs.write,
            "wait": self._wait,
            "acks": self._acks,
            "news": self.deliver_news,
            "rebalance": self._rebalance,
            "start": self.start,
            "evict": self._evict,
            "kill": self._kill,
            "stop": self._stop,
            "move_offset": self._move_offset,
            "halt": self._halt,
            "holes": self.logs.make_holes,
            "retention": self.logs.delete_oldest,
            "cut": self.logs.truncate,
            "remake": self._remake,
            "widen": self.logs.widen,
            "levels": self._edit_levels,
            "weather": self._change_fault_plan,
            "redrive": self._redrive,
            "replay": self._replay,
        }
        for topic in plan.sources:
            self.broker.create_topic(topic, plan.partitions)
        scene.ladder.create()
        self.broker.create_topic(RESULT_TOPICS[0], 2, max_message_bytes=1_000)
        group = self.broker.group(GROUP)
        group.commit_fault = self.fault_plan.commit_fault
        self.broker.fate_of = self.fault_plan.fate_of

    # ---- one step

    def step(self) -> None:
        """Do one random thing."""
        plan = self.plan
        self.clock.advance(plan.pace_s * 2 * self.rng.random())
        index = bisect(plan.weights, self.rng.random() * plan.weights[-1])
        self._actions[plan.actions[index]]()

    def pass_time(self, member: SimulatedMember, timeout_s: float) -> None:
        """Let the simulation continue while a member waits."""
        if not member.is_captive:
            self.clock.advance(min(timeout_s, self.plan.pace_s))
            self._work()
            return
        self.clock.advance(timeout_s * self.rng.random() + 0.001)
        for _ in range(3):
            self._work()
        chance = self.rng.random()
        if chance < 0.3:
            self._turn()
        elif chance < 0.5:
            self._acks()
        elif chance < 0.52 and "evict" in self.plan.actions and not self.fault_plan.calm:
            self.history.record(f"{member} is evicted while it waits")
            self.broker.evict(member.source)

    def settle(self) -> None:
        """Let every member do its work without a fault."""
        for member in list(self.members):
            for _ in range(200):
                if member.slots.idle or member.dead:
                    break
                self._step(member)
            member.sink.serve()
        self.clock.advance(self.plan.calm_step_s)
        for member in list(self.members):
            if self.plan.calm_step_s > FREEZE_S:
                # Between two such steps a real member would have taken many turns.
                member.loop._freeze_detector.was_busy()  # noqa: SLF001 - the loop without its thread
            self._take_turn(member)
            self._take_turn(member)
            if self.plan.is_transactional:
                member.sink.serve()
                self._take_turn(member)

    # ---- members

    def _turn(self) -> None:
        free = [member for member in self.members if not member.on_stack]
        if not free:
            return
        member = free[int(self.rng.random() * len(free))]
        member.source.max_batch = 1 + int(30 * self.rng.random() ** 3)
        self._take_turn(member)

    def _take_turn(self, member: SimulatedMember) -> None:
        if member.dead or member.on_stack:
            return
        if not member.turn():
            self.members.remove(member)
            return
        self.scene.calls.poison.on_turn(member)
        check_bounds(self.history, member)
        self.scene.commits.catch_up()

    def _work(self) -> None:
        if not self.members:
            return
        member = self.members[int(self.rng.random() * len(self.members))]
        for _ in range(1 + int(self.rng.random() * 12)):
            self._step(member)

    def _step(self, member: SimulatedMember) -> None:
        """Advance one of a member's slots; its process may die of it."""
        if not member.dead:
            member.slots.step(self.rng)
        if member.slots.dying and not member.dead and not member.on_stack:
            self._end_process(member)
            if self.fault_plan.calm:
                self.notice_the_dead()

    def _acks(self) -> None:
        for member in self.members:
            member.sink.serve(at_most=1 + int(self.rng.random() * 3))

    def _wait(self) -> None:
        self.clock.advance(self.rng.choice(self.plan.waits_s))
        if self.rng.random() < 0.7:
            # Usually real members would have taken many turns in the meantime; otherwise they were
            # frozen.
            for member in self.members:
                member.loop._freeze_detector.was_busy()  # noqa: SLF001 - the loop without its thread

    def start(self) -> None:
        """Start a member if one is missing."""
        if len(self.members) < self._most_members:
            self._born += 1
            member = SimulatedMember(f"m{self._born}", self.scene, self.fault_plan, self.pass_time)
            self.history.record(f"{member} joins")
            self.members.append(member)

    def _rebalance(self) -> None:
        self.history.record("the group rebalances")
        self.broker.group(GROUP).rebalance(turn=self.rng.random() < 0.7)

    def _evict(self) -> None:
        if self.unnoticed:
            self.broker.evict(self.unnoticed.pop())
            return
        member = self._anybody()
        if member is not None:
            self.history.record(f"{member} is evicted from the group")
            self.broker.evict(member.source)

    def _kill(self) -> None:
        member = self._anybody()
        if member is not None:
            if self.rng.random() < 0.5:
                member.sink.serve()
            self._end_process(member)

    def _end_process(self, member: SimulatedMember) -> None:
        member.kill()
        self.members.remove(member)
        self.unnoticed.append(member.source)

    def _stop(self) -> None:
        member = self._anybody()
        if member is not None:
            self.stop(member)

    def stop(self, member: SimulatedMember) -> None:
        """Stop a member cleanly."""
        member.stop()
        self.members.remove(member)
        self.scene.commits.catch_up()

    def _anybody(self) -> SimulatedMember | None:
        free = [member for member in self.members if not member.on_stack]
        return free[int(self.rng.random() * len(free))] if free else None

    def deliver_news(self) -> None:
        """Let the topic watches detect the present topics."""
        for member in self.members:
            topics = member.find_topics()
            facts = {topic: self.broker.topics.facts(topic) for topic in topics}
            member.completions.put(TopicNews({t: each for t, each in facts.items() if each}))

    def _halt(self) -> None:
        """Let a person pause or resume a partition, or a whole worker."""
        member = self._anybody()
        if member is None:
            return
        name = self.rng.choice([None, *member.engine.partitions])
        self._set_paused(member, name, halted=self.rng.random() < 0.5)

    def _set_paused(
        self, member: SimulatedMember, name: TopicPartition | None, *, halted: bool
    ) -> None:
        self.history.record(f"{member}: {name or 'all'} is {'paused' if halted else 'resumed'}")

        def ask(engine: Engine, clock: Clock) -> bool:
            return engine.on_halted(name, clock.now(), halted=halted)

        member.completions.put(MailboxRequest(ask))

    # ---- topics

    def _remake(self) -> None:
        self.logs.remake()
        if self.rng.random() < 0.5:
            self._rebalance()

    def _edit_levels(self) -> None:
        """Change the configured levels, and restart one member or all of them."""
        if self.plan.engine.retry.on_failure == "block":
            return  # a record that blocks its lane does not use the ladder
        ladder = self.scene.ladder
        ladder.edit(self.rng)
        self.history.record(f"levels are {', '.join(each.name for each in ladder.levels)} now")
        members = len(self.members)
        ended = 1 if self.rng.random() < 0.5 else members
        while len(self.members) > members - ended and (member := self._anybody()) is not None:
            if self.rng.random() < 0.2:
                self._end_process(member)
            else:
                self.stop(member)
        while len(self.members) < members:
            self.start()

    def _redrive(self) -> None:
        """Redrive dead letters; rarely start a second redrive while one runs."""
        if not self.redrives.at_work or self.rng.random() < 0.05:
            self.redrives.begin()

    def _replay(self) -> None:
        """Replay records; rarely start a second replay while one runs."""
        if not self.replays.at_work or self.rng.random() < 0.3:
            self.replays.begin()

    def _meanwhile(self) -> None:
        """Let the simulation continue during a redrive or a replay."""
        if self.fault_plan.calm:
            return
        for _ in range(1 + int(self.rng.random() * 3)):
            self.step()

    # ---- faults

    def _move_offset(self) -> None:
        """Stop all members, move an offset, and start one."""
        while (member := self._anybody()) is not None:
            self.stop(member)
        if self.members:
            return
        self.notice_the_dead()
        self.logs.move_offset()
        self.scene.commits.catch_up()
        self.start()

    def notice_the_dead(self) -> None:
        """Let the sessions of killed members time out."""
        for source in self.unnoticed:
            self.broker.evict(source)
        self.unnoticed.clear()

    def _change_fault_plan(self) -> None:
        rng = self.rng
        self.fault_plan.change()
        self.broker.topics.answering = rng.random() < 0.7
        group = self.broker.group(GROUP)
        if rng.random() < 0.1 and not self.plan.is_transactional:  # would stop the worker
            self.scene.commits.metadata_is_cut = True
            group.max_metadata_bytes = rng.choice((45, 64, 100))
        for member in self.members:
            member.source.answers_held = rng.random() < 0.3

    def calm_down(self) -> None:
        """End all faults for good."""
        self.history.record("---- the faults end")
        self.fault_plan.calm = True
        self.broker.topics.answering = True
        for member in self.members:
            member.source.answers_held = False
            for name in (None, *member.engine.partitions):
                self._set_paused(member, name, halted=False)
        for topic in self.scene.ladder.names:
            self.broker.topics.by_name[topic].max_message_bytes = 10**6
        self.notice_the_dead()
        if self.plan.wider:
            # With unequal counts, assignments differ, and copies may wait until one member has all.
            self._most_members = 1
            while len(self.members) > 1:
                self.stop(self.members[-1])
        self.broker.group(GROUP).rebalance()
