"""``window-consumer demo``: fills the topic, runs the shop, draws the windows and judges."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from window_consumer.admin.commands.live_view import view
from window_consumer.admin.commands.screen import Memory, TopScene
from window_consumer.cli.logs import GC_THRESHOLD, SWITCH_INTERVAL_S, tune
from window_consumer.cli.output import FAILED, OK, exits
from window_consumer.config import TopicNames
from window_consumer.demo.checker import DemoReport, DemoRun, judge
from window_consumer.demo.shop import ORDERS, PARTITIONS, TOPIC, Shop, orders
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.model import headers as names
from window_consumer.plan.app_plan import AppPlan
from window_consumer.runtime.running import Running

LONGEST_S = 28.0
"""The demo gives up, and reports what is missing, once nothing has finished for this long.

A slow machine takes longer than this in all, and loses nothing.
"""

Show = Callable[[TopScene], object]
"""Takes the current picture."""

_TITLE = "demo"
_CHECK_S = 0.1
_SETTLE_S = 0.6
"""How long the last picture stays: the window has slid to its end."""


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option("--no-ui", is_flag=True, help="Do not draw the windows.")
@exits({FAILED: "a promise was broken"})
def demo_command(*, as_json: bool, no_ui: bool) -> int:
    """Show a worker at work: 20,000 orders, some fail, some are poison, one hangs."""
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    # Failures here are intended; the report lists them.
    logging.getLogger("window_consumer").setLevel(logging.CRITICAL)
    console = Console(stderr=as_json)
    if no_ui or not console.is_terminal or console.is_dumb_terminal:
        report = run_demo()
    else:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            report = run_demo(lambda scene: live.update(view(scene, console.width), refresh=True))
    return conclude(report, console, as_json=as_json)


def conclude(report: DemoReport, console: Console, *, as_json: bool) -> int:
    """Print a report and return its exit code."""
    if as_json:
        click.echo(json.dumps(attrs.asdict(report)))
    else:
        console.print(_as_table(report))
    return OK if report.good else FAILED


def run_demo(show: Show | None = None) -> DemoReport:
    """Run the demo once and return the checker's report; ``show`` is called repeatedly."""
    shop = Shop()
    with EmbeddedBroker(topics={TOPIC: PARTITIONS}) as broker:
        produced = _fill(broker)
        plan = _plan(shop, broker)
        dlq = TopicNames(plan.workers[0].config, plan.config.topics).dlq(TOPIC)
        broker.create_topic(dlq, PARTITIONS)
        started = time.perf_counter()
        with shop.app.start_plan(plan, start_timeout=LONGEST_S) as running:
            seconds = _watch(running, started, show)
        copies = [_original(dict(copy.headers() or [])) for copy in broker.read_all(dlq)]
        evidence = DemoRun(
            produced=produced,
            calls=shop.journal,
            dead_letters=copies,
            committed=committed_offsets(
                broker.client_settings(), plan.workers[0].config.group, TOPIC
            ),
            ends=broker.end_offsets(TOPIC),
            seconds=seconds,
        )
    return judge(evidence)


def _fill(broker: EmbeddedBroker) -> dict[int, tuple[int, int]]:
    """Produce the orders; return the place of each."""
    made = list(orders(ORDERS))
    records = [NewRecord(key=order.key, value=order.value) for order in made]
    broker.fill(TOPIC, records)
    numbers = {order.value: order.number for order in made}
    return {
        numbers[message.value()]: (message.partition(), message.offset())
        for message in broker.read_all(TOPIC)
    }


def _plan(shop: Shop, broker: EmbeddedBroker) -> AppPlan:
    text = resources.files(__package__).joinpath("workers.yaml").read_text("utf-8")
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "workers.yaml"
        file.write_text(text, "utf-8")
        return shop.app.plan(file, overrides=[f"kafka.bootstrap.servers={broker.bootstrap}"])


def _watch(running: Running, started: float, show: Show | None) -> float:
    """Show the windows until all orders are finished or nothing moves; return the seconds."""
    memory = Memory()
    finished, finished_at = 0, started
    while (count := _finished(running)) < ORDERS:
        now = time.perf_counter()
        if count > finished:
            finished, finished_at = count, now
        if now - finished_at > LONGEST_S or running.wait(_CHECK_S):
            return now - started
        if show is not None:
            show(_scene(running, memory, now - started))
    seconds = time.perf_counter() - started
    if show is not None:
        show(_scene(running, memory, seconds))
        running.wait(_SETTLE_S)
    return seconds


def _scene(running: Running, memory: Memory, seconds: float) -> TopScene:
    workers = [
        memory.worker(name, snapshot, seconds) for name, snapshot in running.snapshots().items()
    ]
    return TopScene(_TITLE, seconds, tuple(workers))


def _finished(running: Running) -> int:
    did = running.counters["charge"]
    return did.processed + did.dead_lettered


def _original(headers: Mapping[str, bytes | None]) -> tuple[int, int]:
    partition = headers[names.ORIGINAL_PARTITION] or b""
    offset = headers[names.ORIGINAL_OFFSET] or b""
    return int(partition), int(offset)


def _as_table(report: DemoReport) -> Table:
    table = Table(box=None, show_header=False)
    table.add_column(justify="right")
    table.add_column()
    for field, value in attrs.asdict(report).items():
        bad = value is False or (field in {"lost", "order_violations"} and value)
        text = _YES_NO[value] if isinstance(value, bool) else str(value)
        table.add_row(text, field.replace("_", " "), style="bold red" if bad else None)
    return table


_YES_NO = {True: "yes", False: "no"}
