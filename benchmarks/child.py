"""The child processes' parts: ``python -m benchmarks.child PART ARGUMENTS``, called by machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import cattrs

from benchmarks import (
    at_most_once,
    bare_loop,
    broadcast,
    delaying,
    delaying_wheel,
    downstream,
    framework,
    ladder,
    loop,
    outage,
    page,
    parking,
    parking_kills,
    pipeline_dlq,
    pipeline_trace,
    poison,
    processes,
    producing,
    pulling,
    pushing,
    records,
    redriving,
    replaying,
    sharing,
    stuck,
    transactions,
)
from benchmarks.breaker_scenes import playing
from benchmarks.workloads import TopicSpec, Workload
from window_consumer.model.errors import WindowConsumerError


def _backfill(**given: Any) -> Any:
    """Import the part that needs Spark only when it runs."""
    from benchmarks import backfilling  # noqa: PLC0415 - optional, and slow

    return backfilling.run(**given)


def _audit(**given: Any) -> Any:
    """Import the part that needs Spark only when it runs."""
    from benchmarks import pipeline_audit  # noqa: PLC0415 - optional, and slow

    return pipeline_audit.run(**given)


def _audit_table(**given: Any) -> Any:
    """Import the part that needs Spark only when it runs."""
    from benchmarks import pipeline_audit  # noqa: PLC0415 - optional, and slow

    return pipeline_audit.write(**given)


def _once(**given: Any) -> Any:
    """Import what imports SQLAlchemy only when it is asked for."""
    from benchmarks import once  # noqa: PLC0415 - optional, and slow

    return once.run(**given)


def _once_member(**given: Any) -> Any:
    """Import what imports SQLAlchemy only when it is asked for."""
    from benchmarks import once_kills  # noqa: PLC0415 - optional, and slow

    return once_kills.run_member(**given)


def _outbox_relay(**given: Any) -> Any:
    """Import what imports SQLAlchemy only when it is asked for."""
    from benchmarks import outbox_kills  # noqa: PLC0415 - optional, and slow

    return outbox_kills.run_relay(**given)


PARTS: Mapping[str, Callable[..., Any]] = {
    "at_most_once": at_most_once.handle_all,
    "at_most_once_member": at_most_once.run_member,
    "audit_counts": _audit,
    "audit_table": _audit_table,
    "backfill": _backfill,
    "bare_loop": bare_loop.run,
    "breaker_scene": playing.play,
    "broadcast": broadcast.read,
    "framework": framework.run,
    "delay_exact": delaying.punctual,
    "delay_forward": delaying.forward,
    "delay_host": delaying_wheel.host,
    "delay_member": delaying.run_member,
    "dead_letters": redriving.fill,
    "dead_letter_topic": pipeline_dlq.fill,
    "downstream": downstream.run,
    "ladder": ladder.run,
    "loop": loop.run,
    "once": _once,
    "once_member": _once_member,
    "outage": outage.run,
    "outbox_relay": _outbox_relay,
    "page": page.run,
    "park": parking.run,
    "park_member": parking_kills.run_member,
    "park_scan": parking.scan,
    "poison": poison.run,
    "processes": processes.run,
    "producing": producing.send,
    "pull_all": pulling.pull_all,
    "pull_dead": pulling.pull_dead,
    "push": pushing.post_all,
    "push_bare": pushing.post_by_hand,
    "push_outage": pushing.post_through_outage,
    "redrive": redriving.run,
    "replay": replaying.run,
    "replay_paced": replaying.run_paced,
    "sharing": sharing.play,
    "stuck": stuck.run,
    "trace_events": pipeline_trace.fill,
    "trace_index": pipeline_trace.index,
    "trace_search": pipeline_trace.search,
    "transactions": transactions.forward,
    "transactions_member": transactions.run_member,
    "transactions_visible": transactions.visible,
    "write": records.write,
}

_CLASSES: Mapping[str, type[Any]] = {"workload": Workload, "spec": TopicSpec}


def main(part: str, arguments: str) -> None:
    """Run a part and print its result as one JSON object."""
    given = {
        name: cattrs.structure(value, _CLASSES[name]) if name in _CLASSES else value
        for name, value in json.loads(arguments).items()
    }
    try:
        answer = PARTS[part](**given)
    except WindowConsumerError as error:
        sys.exit(f"error: {error}")
    print(json.dumps(cattrs.unstructure(answer)))


if __name__ == "__main__":
    main(*sys.argv[1:])
