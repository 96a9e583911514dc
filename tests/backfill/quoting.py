"""An application whose handler quotes its record."""

from __future__ import annotations

from window_consumer import App, Record

app = App("quoting")


@app.handler("orders", group="quoting")
def charge(record: Record) -> None:
    """Raise an error that quotes a field."""
    raise KeyError(record.json()["card"])
