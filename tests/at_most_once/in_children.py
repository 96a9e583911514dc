"""An application for child processes, which import it."""

from __future__ import annotations

import os

from window_consumer import App, Record

CALLS, FATAL = "AT_MOST_ONCE_CALLS", "AT_MOST_ONCE_FATAL"
"""Environment variables: the file of calls, and the text of the record that ends its process."""

app = App("shop")


@app.handler()
def charge(record: Record) -> None:
    with open(os.environ[CALLS], "a") as file:  # noqa: PTH123 - one call less in the child
        file.write(f"{record.text()}\n")
    if record.text() == os.environ[FATAL]:
        os._exit(1)
    if record.text().endswith("3"):
        raise ValueError("bad")
