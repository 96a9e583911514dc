"""The cost of telemetry: the same run with each kind of it, next to one without any."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import evolve, field, frozen

from benchmarks.results import Run
from window_consumer.metrics.otel import sdk
from window_consumer.model.errors import RunError

COLLECTOR: Final = """
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""
"""A collector in a separate process that accepts everything."""


SPOOL: Final = Path(tempfile.gettempdir()) / f"wc-bench-spool-{os.getpid()}"
"""The trace's directory, of this process."""


@frozen
class Variant:
    """A kind of telemetry; its name is that of the ratio."""

    sections: Mapping[str, Any] = field(factory=dict)
    """What is added to the configuration."""
    env: Mapping[str, str] = field(factory=dict)
    """OTEL_* variables; if there are any, OpenTelemetry is set up with a collector."""
    ids: bool = False
    """Records have ids in their headers."""
    beside: str = ""
    """The variant to compare with: the same without telemetry."""


def _traced(sample: str) -> dict[str, Any]:
    """Trace a share of the records, with their keys, to the spool."""
    trace = {"sample": sample, "topic": "wc-bench-trace", "keys": "raw"}
    return {"trace": {**trace, "way": "spool", "directory": str(SPOOL)}}


WITHOUT: Final = ""
WITHOUT_BUT_IDS: Final = "without-ids"

_AUDIT: Final = {"enabled": True, "directory": "audit"}
_HEALTH: Final = {"health": {"listen": "127.0.0.1:0"}}
_OFTEN: Final = {"OTEL_METRIC_EXPORT_INTERVAL": "200"}

VARIANTS: Final[Mapping[str, Variant]] = {
    WITHOUT: Variant(),
    WITHOUT_BUT_IDS: Variant(ids=True),
    "metrics": Variant(_HEALTH, {"OTEL_TRACES_EXPORTER": "none", **_OFTEN}),
    "spans": Variant(
        env={
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.01",
        }
    ),
    "trace-100": Variant(_traced("100%")),
    "trace-1": Variant(_traced("1%")),
    "audit": Variant({"audit": _AUDIT}),
    "audit-ids": Variant({"audit": {**_AUDIT, "ids": True}}, ids=True, beside=WITHOUT_BUT_IDS),
    "all-on": Variant(
        {**_HEALTH, **_traced("100%"), "audit": {**_AUDIT, "ids": True}},
        {"OTEL_TRACES_SAMPLER": "always_on", **_OFTEN},
    ),
}
"""Metrics are exported five times a second, 300 times as often as usual, because a run takes only a
second or two.
"""


class _Losses(logging.Handler):
    """Keeps the log lines about lost trace events."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        line = record.getMessage()
        if line.startswith("trace:"):
            self.lines.append(line)


@contextmanager
def _tracing() -> Iterator[None]:
    """Raise RunError where the trace has lost events: it would look too cheap."""
    losses = _Losses()
    logger = logging.getLogger("window_consumer")
    logger.addHandler(losses)
    try:
        yield
    finally:
        logger.removeHandler(losses)
        shutil.rmtree(SPOOL, ignore_errors=True)
    if losses.lines:
        raise RunError(losses.lines[0])


@contextmanager
def telling(variant: Variant) -> Iterator[None]:
    """Provide what the variant needs beside its sections, and check that no event is lost."""
    with ExitStack() as needs:
        if "trace" in variant.sections:
            needs.enter_context(_tracing())
        if variant.env:
            needs.enter_context(_exporting(variant.env))
        yield


@contextmanager
def _exporting(env: Mapping[str, str]) -> Iterator[None]:
    """Set OpenTelemetry up in this process, as ``run`` does, with a collector."""
    command = [sys.executable, "-c", COLLECTOR]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as collector:
        assert collector.stdout is not None
        port = int(collector.stdout.readline())
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
        os.environ.update(env)
        telemetry = sdk.set_up("benchmarks")
        try:
            yield
        finally:
            telemetry.end()
            collector.kill()


def side_by_side(run: Callable[[str], Run], names: Sequence[str], number: int, records: int) -> Run:
    """Run each variant, in another order each time, and compare it with one without."""
    turns = [*dict.fromkeys((WITHOUT, *(VARIANTS[name].beside for name in names), *names))]
    turns = turns[number % len(turns) :] + turns[: number % len(turns)]
    found = {name: run(name) for name in turns}
    without = found[WITHOUT]
    return evolve(
        without,
        ratios={
            name: found[name].records_per_s / found[VARIANTS[name].beside].records_per_s
            for name in names
        },
        notes={
            f"{name or 'without'}_cpu_us": each.cpu_s * 1e6 / records
            for name, each in found.items()
        },
        lost=sum(each.lost for each in found.values()),
        committed_equals_end=all(each.committed_equals_end for each in found.values()),
    )
