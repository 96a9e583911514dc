"""An address that answers as a worker's would, or does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define

from tests.engine.driver import Driven
from tests.engine.support import notes
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.metrics.http_server import HttpServer
from window_consumer.runtime.figures.worker_snapshot import to_json
from window_consumer.runtime.replica import HttpAnswer


def a_snapshot() -> WindowsSnapshot:
    """Two cells, of which the first one hovers: one call runs for three seconds."""
    driven = Driven(slots=8, window_cells=4, cell_records=2)
    driven.deliver(*notes(0, 1, 2, 3))
    driven.tick()
    for slice_ in list(driven.out):
        if slice_.messages[0].offset() == 0:
            driven.claim(slice_, 1)
        else:
            driven.finish(slice_)
    driven.tick(3.0)
    return driven.snapshot()


def reported(
    snapshot: WindowsSnapshot | None = None, name: str = "charge", **more: Any
) -> dict[str, Any]:
    """The answer of a process with one worker."""
    worker = {
        "name": name,
        "group": "shop",
        "phase": "running",
        "ready": True,
        "slots": 8,
        "snapshot": to_json(snapshot or a_snapshot()),
        "busy_ratio": 0.25,
        "time_to_drain_s": 90.0,
        **more,
    }
    return {"process": "", "time": 1_700_000_000_000, "workers": [worker]}


@define
class FakeWorker:
    """Answers at ``url``; the answer may be changed."""

    url: str
    answer: Callable[[], HttpAnswer]

    def tell(self) -> HttpAnswer:
        return self.answer()

    def tells(self, fields: Any) -> None:
        text = json.dumps(fields)
        self.answer = lambda: HttpAnswer(200, text, "application/json")


@contextmanager
def fake_worker(fields: Any = None, port: int = 0) -> Iterator[FakeWorker]:
    worker = FakeWorker("", lambda: HttpAnswer(500, ""))
    worker.tells(reported() if fields is None else fields)
    routes = dict.fromkeys(["/api/windows", "/metrics"], worker.tell)
    server = HttpServer.on_port("127.0.0.1", port, routes, lambda: None, key="admin.listen")
    worker.url = server.where
    try:
        yield worker
    finally:
        server.close()
