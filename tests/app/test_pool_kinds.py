"""A kind of pool is one module: whoever decides by a kind asks what it can do."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any, ClassVar

import pytest
from attrs import evolve
from confluent_kafka import Producer

import window_consumer
from tests.golden_texts import Golden
from tests.waiting import wait_until
from window_consumer import App, ConfigError, Record
from window_consumer.app.limits import bounds_of
from window_consumer.engine.guards.stuck_calls import Ending, Stalled
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.fault import Failure
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.record_calls import call_each
from window_consumer.runtime.context import Slot
from window_consumer.runtime.pools.pool import PoolKind
from window_consumer.runtime.pools.registry import KINDS

PACKAGE = Path(window_consumer.__file__).parent


class PoolWithoutSlots:
    """Calls the handler on the poll thread, while a slice is handed out."""

    ending: ClassVar[Ending] = "cancelled"

    def __init__(
        self, worker: str, slots: int, caller: Caller, completions: SimpleQueue[Any], state: Any
    ):
        del worker
        self.slots = slots
        self._caller, self._completions, self._state = caller, completions, state

    def start(self) -> None: ...

    def submit(self, slice_: Slice) -> None:
        slice_.call.state = self._state
        slice_.thread = threading.get_ident()
        slice_.started = perf_counter()
        call_each(slice_, self._caller, Slot())
        slice_.elapsed = perf_counter() - slice_.started
        self._completions.put(slice_)

    def inspect(self, stalled: Stalled) -> Failure | None:
        del stalled
        return None

    def interrupt(self, slices: Sequence[Slice]) -> bool:
        del slices
        return False

    def stop(self, timeout_s: float) -> int:
        del timeout_s
        return 0


@pytest.fixture
def borrowed() -> Iterator[PoolKind]:
    """A kind of pool that only this test knows."""
    kind = PoolKind(
        name="borrowed",
        make=lambda _parts: PoolWithoutSlots,
        computes_in_parallel=True,
        max_slots=3,
        slot_bytes=1000,
    )
    KINDS[kind.name] = kind
    yield kind
    del KINDS[kind.name]


def configured(tmp_path: Path, text: str, kafka: str = "kafka: {bootstrap.servers: b:1}") -> Path:
    file = tmp_path / "workers.yaml"
    file.write_text(f"{kafka}\nworkers: {{charge: {{{text}}}}}\n")
    return file


def test_a_worker_runs_with_a_kind_of_pool_that_nothing_else_knows(
    borrowed: PoolKind, embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("orders", 2)
    app = App("shop")
    calls: list[tuple[str, int]] = []

    @app.handler("orders", group="shop", retry={"backoff": "10ms..20ms"})
    def charge(record: Record) -> None:
        calls.append((threading.current_thread().name, record.json()))
        if record.json() % 10 == 0 and record.attempt == 1:
            raise ValueError

    kafka = f"kafka: {{bootstrap.servers: '{embedded.bootstrap}'}}"
    file = configured(tmp_path, f"pool: {borrowed.name}", kafka)
    producer = Producer({"bootstrap.servers": embedded.bootstrap})
    for value in range(50):
        producer.produce("orders", str(value).encode(), partition=value % 2)
    assert producer.flush(30) == 0
    with app.start(file, start_timeout=60) as running:
        wait_until(lambda: running.counters["charge"].processed == 50, 60.0, "all are charged")
    assert {thread for thread, _ in calls} == {"wc-charge-poll"}
    assert sorted(value for _, value in calls) == sorted([*range(50), *range(0, 50, 10)])


def test_what_a_kind_of_pool_can_do_decides_about_configurations(
    borrowed: PoolKind, tmp_path: Path, golden: Golden
) -> None:
    app = App("shop")

    @app.handler("orders", group="shop")
    def charge(record: Record) -> None: ...

    (worker,) = app.plan(configured(tmp_path, "pool: borrowed, concurrency: 3")).workers
    assert worker.pool is borrowed
    assert not worker.engine.stall.ends
    in_threads = evolve(worker, config=evolve(worker.config, pool="threads"))
    extra = bounds_of(worker).resident_bytes - bounds_of(in_threads).resident_bytes
    assert extra == 3 * borrowed.slot_bytes
    with golden.raises(ConfigError):
        app.plan(configured(tmp_path, "pool: borrowed, concurrency: 4"))
    with golden.raises(ConfigError):
        app.plan(configured(tmp_path, "pool: borowed"))


def test_coroutines_are_refused_where_a_kind_of_pool_names_none_for_them(
    borrowed: PoolKind, tmp_path: Path, golden: Golden
) -> None:
    app = App("shop")

    @app.handler("orders", group="shop")
    async def charge(record: Record) -> None: ...

    with golden.raises(ConfigError):
        app.plan(configured(tmp_path, f"pool: {borrowed.name}"))
    KINDS[borrowed.name] = evolve(borrowed, coroutines_on="asyncio")
    (worker,) = app.plan(configured(tmp_path, f"pool: {borrowed.name}")).workers
    assert worker.pool is KINDS["asyncio"]


def constants(node: ast.AST) -> Iterator[object]:
    """Yield what a side of a comparison has as constants, those within brackets included."""
    if isinstance(node, ast.Constant):
        yield node.value
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for each in node.elts:
            yield from constants(each)


def decisions_by_kind(code: str) -> Iterator[int]:
    """Yield the lines that compare something with the name of a kind of pool, or know its class."""
    modules = {kind.make.__module__ for kind in KINDS.values()}
    classes = {
        name
        for module in modules
        for name, value in vars(sys.modules[module]).items()
        if isinstance(value, type) and value.__module__ == module and name.endswith("Pool")
    }
    for node in ast.walk(ast.parse(code)):
        sides: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        elif isinstance(node, ast.Name) and node.id in classes:
            yield node.lineno
        if any(value in KINDS for side in sides for value in constants(side)):
            yield getattr(node, "lineno", 0)


@pytest.mark.parametrize(
    "code",
    [
        "if worker.config.pool == 'processes': ...",
        "slots = 1 if 'threads' != pool else 2",
        "if pool in ('asyncio', 'threads'): ...",
        "match pool:\n    case 'processes': ...",
        "if isinstance(pool, ProcessPool): ...",
        "make_pool = AsyncPool",
    ],
)
def test_decisions_by_kind_are_found(code: str) -> None:
    assert list(decisions_by_kind(code))


def test_nothing_outside_of_the_pools_decides_by_the_kind_of_a_pool() -> None:
    pools = PACKAGE / "runtime" / "pools"
    files = [file for file in PACKAGE.rglob("*.py") if pools not in file.parents]
    assert len(files) > 200
    found = [
        f"{file.relative_to(PACKAGE)}:{line}"
        for file in files
        for line in decisions_by_kind(file.read_text(encoding="utf-8"))
    ]
    assert found == []
