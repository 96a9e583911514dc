"""``window-consumer trace show``: a record's journey as a tree of positions and steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from rich.text import Text
from rich.tree import Tree

from window_consumer.cli.options import pipeline_config
from window_consumer.cli.output import FOUND, OK, exits
from window_consumer.model.outcome import OUTCOMES
from window_consumer.model.redaction import printable_line
from window_consumer.spark.wire import load_pipeline
from window_consumer.trace.commands.index import (
    cluster_option,
    console,
    indexed_only_option,
    open_journeys,
    print_json,
    print_notes,
)
from window_consumer.trace.event import Step, TraceEvent
from window_consumer.trace.journey import Journey, JourneyBranch, JourneyHop, Passage, Place, Stop

_STYLES_OF_ENDS: Final = {"moved": "yellow", "bad": "bold red"}
_STYLES: Final[dict[str, str]] = {
    str(Step.PROCESSED): "green",
    str(Step.STALLED): "yellow",
    str(Step.FAILED): "yellow",
    str(Step.SEND_FAILED): "bold red",
    str(Step.REDRIVEN): "cyan",
    str(Step.REPLAYED): "cyan",
    **{row.step: _STYLES_OF_ENDS[row.end] for row in OUTCOMES if row.end != "good"},
}
_STEP_WIDTH: Final = max(len(step) for step in Step)
_SKEW: Final = "  (clock differs)"


def trees(journey: Journey) -> Iterable[Tree]:
    """Return a tree for the record, and one for each record that it caused."""
    for index, passage in enumerate(journey.passages):
        tree = Tree(_title(passage, is_first=index == 0), guide_style="dim")
        if index == 0:
            began = datetime.fromtimestamp(journey.began_us / 1e6, UTC)
            tree.add(Text(f"began {began:%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC", "dim"))
        for stop in passage.sent:
            tree.add(_line(stop, _who(stop.event)))
        for way in passage.ways:
            branch = tree.add(_way(way))
            for hop in way.hops:
                at = branch.add(Text(_where(hop), "bold"))
                for stop in hop.stops:
                    at.add(_line(stop, _host(hop, stop)))
        yield tree


def in_seconds(microseconds: int) -> str:
    """Format a duration with a width that suits columns."""
    if microseconds >= 60_000_000:
        minutes, rest = divmod(microseconds // 1_000_000, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
    if microseconds >= 1_000_000:
        return f"{microseconds / 1e6:.1f} s"
    return f"{microseconds / 1000:.1f} ms"


def place_text(place: Place) -> str:
    """Format a position as `orders[0]@17`."""
    topic, partition, offset = place
    named = topic if partition is None else f"{topic}[{partition}]"
    return printable_line(named if offset is None else f"{named}@{offset}")


def _title(passage: Passage, *, is_first: bool) -> Text:
    title = Text("" if is_first else "then ", "dim")
    name = passage.record_id or "a record without an id"
    title.append(printable_line(name), "bold")
    about = [place_text(passage.place)]
    if passage.key is not None:
        about.append(f"key {printable_line(passage.key)}")
    if passage.tags:
        about.append(f"tags {printable_line(passage.tags)}")
    return title.append("  " + " · ".join(about), "not bold")


def _way(way: JourneyBranch) -> Text:
    events = [stop.event for hop in way.hops for stop in hop.stops]
    title = Text("group ", "dim").append(printable_line(way.group or "without a name"), "bold")
    handlers = _distinct(event.handler for event in events)
    apps = _distinct(event.app for event in events)
    about = [*(f"handler {name}" for name in handlers), *apps]
    if way.attempts:
        about.append(f"{way.attempts} attempt" + "s" * (way.attempts > 1))
    if way.redrives:
        about.append(f"put back {way.redrives} time" + "s" * (way.redrives > 1))
    if way.replays:
        about.append(f"replayed {way.replays} time" + "s" * (way.replays > 1))
    title.append("  " + " · ".join(map(printable_line, about)))
    style = "bold red" if way.went_wrong else "green" if way.end else "yellow"
    return title.append("  " + (way.end or "not finished"), style)


def _where(hop: JourneyHop) -> str:
    hosts = _distinct(stop.event.host for stop in hop.stops)
    return place_text(hop.place) + (f"  on {', '.join(hosts)}" if hosts else "")


def _line(stop: Stop, about: str) -> Text:
    event = stop.event
    sign = "+" if stop.after_us >= 0 else "-"
    line = Text(f"{sign}{in_seconds(abs(stop.after_us)):>12}  ", "dim")
    line.append(f"{printable_line(event.step):<{_STEP_WIDTH}}", _STYLES.get(event.step, ""))
    if about:
        line.append(f"  {about}")
    if stop.is_early:
        line.append(_SKEW, "magenta")
    return line


def _who(event: TraceEvent) -> str:
    parts = [] if event.status == "ok" else [event.status]
    if event.duration_us is not None:
        parts.append(f"after {in_seconds(event.duration_us)}")
    parts.append(place_text((event.topic, event.partition, event.offset)))
    writer = "@".join(filter(None, (event.client_id, event.host)))
    if writer:
        parts.append(f"by {writer}")
    return printable_line(" · ".join(parts + _error(event)))


def _host(hop: JourneyHop, stop: Stop) -> str:
    event = stop.event
    parts = []
    if event.attempt is not None and event.step in {Step.FAILED, Step.STALLED}:
        parts.append(f"attempt {event.attempt}")
    if event.duration_us is not None:
        parts.append(f"after {in_seconds(event.duration_us)}")
    if event.status != "ok":
        parts.append(event.status)
    if len({each.event.host for each in hop.stops}) > 1 and event.host:
        parts.append(f"on {event.host}")
    return printable_line(" · ".join(parts + _error(event)))


def _error(event: TraceEvent) -> list[str]:
    error = " ".join(filter(None, (event.error_class, event.error_fingerprint)))
    return [error] if error else []


def _distinct(texts: Iterable[str | None]) -> Sequence[str]:
    return [printable_line(text) for text in dict.fromkeys(texts) if text]


@click.command("show")
@click.argument("record", metavar="ID")
@pipeline_config
@cluster_option
@indexed_only_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@exits({FOUND: "no step of the record is known"})
def show_command(
    *, record: str, config: Path, cluster: str | None, indexed_only: bool, as_json: bool
) -> int:
    """Show all steps of a record: sent, received, each attempt, each level, and its end.

    ID is the record's `wc-id`, or the position of its first delivery: orders/0/17. Recent events
    that are not in the table yet are read from Kafka.
    """
    plan = load_pipeline(config)
    answer = open_journeys(plan, indexed_only=indexed_only).of(record, cluster)
    print_notes(answer.notes, plan)
    journey = Journey.of(answer.events)
    if journey is None:
        click.echo(f"no step of {record} is known", err=True)
        return FOUND
    if as_json:
        print_json(answer.events)
        return OK
    to = console()
    for tree in trees(journey):
        to.print(tree, soft_wrap=True)
    click.echo(f"{len(answer.events)} steps in {in_seconds(journey.lasted_us)}")
    if journey.has_skew:
        click.echo("clocks of hosts differ: some steps seem earlier than their cause", err=True)
    return OK
