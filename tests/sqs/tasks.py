"""Tasks of Celery, as a program that has used Amazon SQS has them: only the broker's URL is new."""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery

URL = os.environ["ENDPOINT"]
QUEUES = {name: {"url": f"{URL}/000000000000/{name}"} for name in ("orders", "mails.fifo")}

app = Celery("tasks", broker=os.environ["BROKER"])
app.conf.update(
    task_default_queue="orders",
    task_routes={"mail": {"queue": "mails.fifo"}},
    broker_transport_options={
        "region": "eu-west-1",
        "is_secure": False,
        "wait_time_seconds": 20,
        **({"predefined_queues": QUEUES} if "PREDEFINED" in os.environ else {}),
    },
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


def _write(line: str) -> None:
    with Path(os.environ["DONE"]).open("a", encoding="utf-8") as done:
        done.write(f"{line}\n")


@app.task(name="charge", acks_late=True)  # type: ignore[untyped-decorator] # Celery has no types
def charge(order: int) -> None:
    _write(f"charge {order}")


@app.task(name="mail", acks_late=True)  # type: ignore[untyped-decorator] # the same
def mail(person: str, number: int) -> None:
    _write(f"mail {person} {number}")
