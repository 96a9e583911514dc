"""Check that the installed package works in this Python: ``python smoke.py``.

It compiles and imports each module with warnings as errors, then lets threads, coroutines and child
processes read from an embedded broker. Modules whose library is not installed are only compiled.
"""

from __future__ import annotations

import importlib
import platform
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import kinds

import window_consumer
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.model.errors import UsageError

ORDERS = 200
KINDS = ("threads", "processes", "coroutines")
LONGEST_S = 60.0
COMMAND = "window_consumer.__main__"
"""Importing it runs the command line."""


def modules() -> Iterator[str]:
    """Yield the names of all modules, without importing any."""
    (root,) = window_consumer.__path__
    for file in sorted(Path(root).rglob("*.py")):
        parts = file.relative_to(Path(root).parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_all() -> str:
    """Compile and import every module; return how many, and the missing libraries."""
    (root,) = window_consumer.__path__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for file in Path(root).rglob("*.py"):
            compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
        missing: Counter[str] = Counter()
        names = [name for name in modules() if name != COMMAND]
        for name in names:
            try:
                importlib.import_module(name)
            except (ModuleNotFoundError, UsageError) as error:
                missing[lacking(error)] += 1
    without = ", ".join(f"{count} need {library}" for library, count in sorted(missing.items()))
    return f"{len(names)} modules compile, {len(names) - missing.total()} are imported ({without})"


def lacking(error: ModuleNotFoundError | UsageError) -> str:
    """Return the library, or our extra, without which a module is not imported."""
    extra = re.search(r"window-consumer\[\w+\]", str(error))
    library = (getattr(error, "name", None) or "").partition(".")[0]
    if not extra and library in {"", "window_consumer", *sys.stdlib_module_names}:
        raise error
    return extra[0] if extra else library


def run_all() -> str:
    """Let each kind of handler read the same orders; raise AssertionError if one does not."""
    served = {str(number).encode() for number in range(ORDERS) if number % 10}
    with EmbeddedBroker(topics={"orders": 2} | {f"{kind}-answers": 1 for kind in KINDS}) as broker:
        broker.fill("orders", [NewRecord(str(number).encode()) for number in range(ORDERS)])
        file = Path("workers.yaml")
        file.write_text(configuration(broker.bootstrap), encoding="utf-8")
        with kinds.app.start(file, start_timeout=LONGEST_S) as running:
            deadline = time.monotonic() + LONGEST_S
            while not all_finished(running) and time.monotonic() < deadline:
                running.wait(0.05)
        for kind in KINDS:
            answers = {message.value() for message in broker.read_all(f"{kind}-answers")}
            assert answers == served, f"{kind}: {len(answers)} answers, not {len(served)}"
            letters = [message.value() for message in broker.read_all(f"smoke-{kind}.orders.dlq")]
            failed = {str(number).encode() for number in range(0, ORDERS, 10)}
            assert set(letters) == failed, f"{kind}: {len(letters)} dead letters"
    return f"{', '.join(KINDS)}: {ORDERS} orders each"


def all_finished(running: window_consumer.Running) -> bool:
    """Return whether each worker has finished all orders."""
    return all(
        counts.processed + counts.dead_lettered >= ORDERS for counts in running.counters.values()
    )


def configuration(bootstrap: str) -> str:
    """Return a configuration in which each worker has two calls at once."""
    pools = {"processes": ", pool: processes"}
    return "\n".join(
        [
            f"kafka: {{bootstrap.servers: '{bootstrap}', consumer: {{fetch.wait.max.ms: 10}}}}",
            "workers:",
            *(f"  {kind}: {{concurrency: 2{pools.get(kind, '')}}}" for kind in KINDS),
        ]
    )


def main() -> None:
    """Run everything."""
    for part in (import_all, run_all):
        sys.stdout.write(f"Python {platform.python_version()}: {part()}\n")


if __name__ == "__main__":
    main()
