"""Plays one scene: writes its records to Kafka, runs its worker, and collects what happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import define, evolve, field
from confluent_kafka import Consumer, TopicPartition

from benchmarks import framework, usage
from benchmarks.breaker_scenes.catalog import SCENES
from benchmarks.breaker_scenes.course import Change, Course, Departure, EndedCall
from benchmarks.breaker_scenes.scene import Scene
from benchmarks.breaker_scenes.services import Answer, Service, ServiceCall
from benchmarks.records import Writer
from benchmarks.topics import Topics
from benchmarks.workloads import WORKLOADS
from window_consumer import Record
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.model.errors import RunError
from window_consumer.runtime.running import Running

_TICK_S = 0.01
_LOOK_S = 0.1
_END_S = 60.0
_READ_S = 30.0


class ServiceError(Exception):
    """Raised by the handler where the service fails."""


@define
class Epoch:
    """The start of a scene for one worker: when the first record is written or called."""

    perf_s: float | None = None
    wall_s: float = 0.0

    def begin(self) -> None:
        """Begin now, unless it has begun."""
        if self.perf_s is None:
            self.wall_s = time.time()
            self.perf_s = time.perf_counter()

    @property
    def now_s(self) -> float:
        """Seconds since the beginning."""
        return 0.0 if self.perf_s is None else time.perf_counter() - self.perf_s


@define
class Shop:
    """The handlers of a worker, which call the service. Any thread may call them."""

    service: Service
    epoch: Epoch
    calls: list[EndedCall] = field(factory=list)
    running: int = 0
    lock: threading.Lock = field(factory=threading.Lock)

    def handle(self, record: Record) -> None:
        """Handle a record, or fail."""
        self._call([record])

    def handle_all(self, records: list[Record]) -> None:
        """Handle a batch, or fail where one of its records does."""
        self._call(records)

    def _call(self, records: Sequence[Record]) -> None:
        with self.lock:
            self.epoch.begin()
            self.running += 1
            began_s = self.epoch.now_s
            answers = [self._answer(record, began_s) for record in records]
        time.sleep(max(each.lasts_s for each in answers))
        ok = all(each.ok for each in answers)
        with self.lock:
            self.running -= 1
            ended_s = self.epoch.now_s
            self.calls += (
                EndedCall(began_s, ended_s, _number(record), _key(record), record.offset, ok)
                for record in records
            )
        if not ok:
            raise ServiceError

    def _answer(self, record: Record, now_s: float) -> Answer:
        call = ServiceCall(_number(record), _key(record), record.attempt, now_s, self.running)
        return self.service.call(call)


def _number(record: Record) -> int:
    return int(record.value or b"")


def _key(record: Record) -> int:
    return int(record.key or b"")


@define
class Side:
    """A worker of a scene, with its topic."""

    scene: Scene
    bootstrap: str
    topic: str
    shop: Shop
    course: Course
    running: Running

    @classmethod
    def start(cls, scene: Scene, bootstrap: str, topic: str, epoch: Epoch) -> Side:
        """Start the worker."""
        shop = Shop(scene.service(), epoch)
        workload = evolve(
            WORKLOADS["breaker-scenes"],
            ordering=scene.ordering,
            slots=scene.slots,
            batch=scene.batch,
        )
        handler: Any = shop.handle_all if scene.batch else shop.handle
        app, plan = framework.planned(
            bootstrap, topic, group_of(topic), workload, handler, scene.worker()
        )
        records = scene.traffic.records()
        bad = (each.number for each in records if shop.service.is_bad(each.number, each.key))
        course = Course({each.number: each.at_s for each in records}, frozenset(bad))
        running = app.start_plan(plan, start_timeout=framework.START_S)
        return cls(scene, bootstrap, topic, shop, course, running)

    @property
    def is_assigned(self) -> bool:
        """Whether it has all partitions."""
        picture = self.running.snapshots().get(framework.WORKER)
        return (
            picture is not None
            and sum(each.name.topic == self.topic for each in picture.partitions)
            == self.scene.traffic.partitions
        )

    @property
    def is_over(self) -> bool:
        """Whether every record is done; copies may come back from levels."""
        finished = self.running.counters[framework.WORKER].finished
        return not self.scene.levels and finished >= len(self.course.written_s)

    def look(self) -> None:
        """Note the breaker's state."""
        picture = self.running.snapshots().get(framework.WORKER)
        if picture is not None:
            state, why = str(picture.breaker.state), picture.breaker.why
            changes = self.course.changes
            if not changes or (changes[-1].state, changes[-1].why) != (state, why):
                changes.append(Change(self.shop.epoch.now_s, state, why))

    def end(self) -> None:
        """Stop the worker and read its results from Kafka."""
        self.course.ended_s = self.shop.epoch.now_s
        framework.end(self.running)
        self.course.calls = list(self.shop.calls)
        self.course.departures = list(self._departures())
        self.course.lost = self._lost()

    def _departures(self) -> Iterator[Departure]:
        """Yield the copies in the order in which Kafka has them."""
        topics = Topics(self.bootstrap)
        group = group_of(self.topic)
        names = [*topics.read_by(self.topic, group), f"{group}.{self.topic}.dlq"][1:]
        for name in filter(topics.exists, names):
            ends = topics.log_ends(name)
            for message in _read(self.bootstrap, name, ends):
                at_s = message.timestamp()[1] / 1000 - self.shop.epoch.wall_s
                yield Departure(at_s, int(message.value()), name)

    def _lost(self) -> int:
        """Count the committed records that were neither handled nor copied."""
        kept = {each.number for each in self.course.calls if each.ok}
        kept |= {each.number for each in self.course.departures}
        topics = Topics(self.bootstrap)
        ends = topics.log_ends(self.topic)
        committed = committed_offsets(
            {"bootstrap.servers": self.bootstrap}, group_of(self.topic), self.topic
        )
        return sum(
            int(message.value()) not in kept
            for message in _read(self.bootstrap, self.topic, ends)
            if message.offset() < committed.get(message.partition(), 0)
        )


def group_of(topic: str) -> str:
    """Return the group of a worker."""
    return f"{topic}-group"


def off(topic: str) -> str:
    """Return the topic of the worker whose breaker is switched off."""
    return f"{topic}-off"


def play(bootstrap: str, topic: str, name: str) -> dict[str, Any]:
    """Play a scene; return its figures, what they mean, and what else was seen."""
    scene = SCENES[name]
    used = usage.cpu_s()
    epoch = Epoch()
    sides = []
    backlog = [each for each in scene.traffic.records() if each.number < scene.traffic.backlog]
    plays = [(topic, scene)]
    if scene.compared:
        plays.append((off(topic), evolve(scene, breaker={"enabled": False})))
    writers = [Writer(bootstrap, each) for each, _ in plays]
    for writer in writers:
        for record in backlog:
            _write(writer, scene, record)
        writer.finish()
    sides = [Side.start(each, bootstrap, where, epoch) for where, each in plays]
    if not backlog:
        _until_assigned(sides)
        epoch.begin()
    live = threading.Thread(target=_write_live, args=(scene, writers, epoch), daemon=True)
    live.start()
    _watch(scene, sides, epoch)
    live.join(_END_S)
    for side in sides:
        side.end()
    courses = [side.course for side in sides]
    course, free = courses[0], courses[1] if scene.compared else None
    return {
        "figures": scene.judge(scene, course, free),
        "lost": sum(each.lost for each in courses),
        "duplicates": sum(each.repeated() for each in courses),
        "order_violations": course.order_violations() if _is_ordered(scene) else 0,
        "stated": scene.stated(),
        "seen": course.summary(),
        "seen_without": free.summary() if free else None,
        "cpu_s": usage.cpu_s() - used,
        "max_rss_mb": usage.max_rss_mb(),
    }


def _is_ordered(scene: Scene) -> bool:
    """Return whether the calls of a key begin in order: copies in levels come back later."""
    return scene.ordering == "key" and not scene.levels


def _write(writer: Writer, scene: Scene, record: Any) -> None:
    place = record.key % scene.traffic.partitions
    writer.write(place, b"%d" % record.key, b"%d" % record.number)


def _write_live(scene: Scene, writers: Sequence[Writer], epoch: Epoch) -> None:
    for record in scene.traffic.records():
        if record.number < scene.traffic.backlog:
            continue
        while epoch.perf_s is None or record.at_s > epoch.now_s:
            for writer in writers:
                writer.serve(0.0)
            time.sleep(_TICK_S)
        for writer in writers:
            _write(writer, scene, record)
    for writer in writers:
        writer.finish()


def _until_assigned(sides: Sequence[Side]) -> None:
    deadline = time.perf_counter() + _END_S
    while not all(side.is_assigned for side in sides):
        for side in sides:
            if side.running.wait(_TICK_S):
                framework.end(side.running)
        if time.perf_counter() > deadline:
            raise RunError(f"not all partitions were assigned within {_END_S:g} s")


def _watch(scene: Scene, sides: Sequence[Side], epoch: Epoch) -> None:
    deadline = time.perf_counter() + scene.lasts_s + _END_S
    while epoch.now_s < scene.lasts_s and not all(side.is_over for side in sides):
        for side in sides:
            side.look()
            if side.running.wait(_LOOK_S / len(sides)):
                framework.end(side.running)
        if time.perf_counter() > deadline:
            raise RunError("no record was called")


def _read(bootstrap: str, topic: str, ends: Any) -> Iterator[Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "wc-bench-reader"})
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in ends])
        deadline = time.perf_counter() + _READ_S
        left = sum(ends.values())
        while left:
            if time.perf_counter() > deadline:
                raise RunError(f"{topic} was not read to its end within {_READ_S:g} s")
            for message in consumer.consume(10_000, 0.5):
                left -= 1
                yield message
    finally:
        consumer.close()
