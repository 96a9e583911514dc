"""``window-consumer delay status``: shows how many records wait in each level, and until when."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import attrs
import click

from window_consumer.cli import options as common
from window_consumer.cli.logs import set_up
from window_consumer.cli.output import OK, duration, explain
from window_consumer.config import Mask
from window_consumer.delay.commands.service import ConfiguredService
from window_consumer.delay.status import ServiceStatus, TopicStatus, status_of
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import WindowConsumerError
from window_consumer.plan.feature_list import FeatureList


@click.command("status")
@common.config
@common.overrides
@common.short_start_timeout
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@common.features
def status_command(
    *,
    config: Path,
    overrides: Sequence[str],
    start_timeout: float,
    as_json: bool,
    features: FeatureList,
) -> int:
    """Show how many records wait in each level of the delay service, and when the next one is due.

    The next ticks of schedules follow. Only Kafka is queried, so the service need not run. A record
    that passes through several levels is counted in its current one.
    """
    formatter = set_up("text", "warning")
    service = ConfiguredService.load(config, overrides, features)
    mask = formatter.mask = Mask(service.loaded.secrets)
    try:
        clients = service.connect(start_timeout)
        tokens = clients.oauth_token
        with TopicReader(clients.consumer, clients.log, oauth_token=tokens) as reader:
            status = status_of(service.section, clients.cluster, reader, round(time.time() * 1000))
    except WindowConsumerError as error:
        return explain(error, mask)
    outlook = features.outlook(service.loaded.config, status.now_ms)
    if as_json:
        coming = {name: [attrs.asdict(each) for each in found] for name, found in outlook.items()}  # type: ignore[arg-type] # see CheckFindings
        click.echo(json.dumps({**status.as_json(), **coming}))
        return OK
    lines = [each.in_words() for found in outlook.values() for each in found]
    click.echo("\n".join([*_in_words(status), *chain.from_iterable(lines)]))
    return OK


def _in_words(status: ServiceStatus) -> Iterator[str]:
    members = "an unknown number of" if status.members is None else status.members
    yield f"group {status.group}, {members} members; waiting: {status.waiting}"
    width = max(len(each.topic) for each in status.topics)
    for each in status.topics:
        yield f"  {each.topic:<{width}}  {each.waiting:>9}  {_due(status, each)}".rstrip()


def _due(status: ServiceStatus, topic: TopicStatus) -> str:
    if not topic.partitions:
        return "does not exist"
    if topic.next_due_ms is None:
        return ""
    late_s = status.late_s(topic)
    said = [f"next in {duration((topic.next_due_ms - status.now_ms) / 1000)}"]
    if late_s:
        said = [f"next: overdue by {duration(late_s)}", f"p99 {duration(topic.late_p99_s or 0.0)}"]
    if topic.paused_partitions:
        said.append(f"full in memory: {topic.paused_partitions} of {topic.partitions} partitions")
    return ", ".join(said)
