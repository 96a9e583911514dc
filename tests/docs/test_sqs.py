"""The programs of docs/sqs.md run against an endpoint."""

from __future__ import annotations

import pytest
from celery import Celery

from tests.docs.pages import ROOT, blocks
from tests.sqs.endpoint import endpoint
from tests.sqs.memory_queue import MemoryQueue

PAGE = ROOT / "docs" / "sqs.md"
SECRET = "a-secret-of-the-shop"  # noqa: S105 - no secret of anybody
ADDRESS = "http://127.0.0.1:9324"


class EnoughError(Exception):
    """Ends a loop that has no end."""


def test_the_consumer_of_the_page_sends_receives_and_deletes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, _ = blocks(PAGE, "python")
    charged: list[str] = []

    def charge(body: str) -> None:
        if charged:
            raise EnoughError
        charged.append(body)

    monkeypatch.setenv("SQS_SECRET", SECRET)
    queue = MemoryQueue("orders")
    with endpoint(queue, credentials={"SHOP": SECRET}) as served:
        queue.put(b"17")
        with pytest.raises(EnoughError):
            exec(program.text.replace(ADDRESS, served.url), {"charge": charge})  # noqa: S102 - the page's own
    assert charged == ["17"]
    assert queue.unfinished == 1


def test_a_task_is_sent_with_the_settings_of_the_page() -> None:
    _, settings = blocks(PAGE, "python")
    queue = MemoryQueue("orders")
    with endpoint(queue, credentials={"SHOP": SECRET}) as served:
        broker = f"sqs://SHOP:{SECRET}@127.0.0.1:{served.port}//"
        with Celery("tasks", broker=broker) as app:
            exec(settings.text, {"app": app})  # noqa: S102 - the page's own
            app.send_task("charge", (17,))
        assert queue.unfinished == 1
