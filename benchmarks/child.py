"""What runs in a child process: ``python -m benchmarks.child PART ARGUMENTS``, both by machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import cattrs

from benchmarks import (
    bare_loop,
    downstream,
    framework,
    ladder,
    loop,
    outage,
    page,
    processes,
    records,
    redriving,
    stuck,
)
from benchmarks.workloads import TopicSpec, Workload
from window_consumer.model.errors import WindowConsumerError

PARTS: Mapping[str, Callable[..., Any]] = {
    "bare_loop": bare_loop.run,
    "framework": framework.run,
    "dead_letters": redriving.fill,
    "downstream": downstream.run,
    "ladder": ladder.run,
    "loop": loop.run,
    "outage": outage.run,
    "page": page.run,
    "processes": processes.run,
    "redrive": redriving.run,
    "stuck": stuck.run,
    "write": records.write,
}

_CLASSES: Mapping[str, type[Any]] = {"workload": Workload, "spec": TopicSpec}


def main(part: str, arguments: str) -> None:
    """Run a part and print its answer as one JSON object."""
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
