"""The table of log events in log-events.md: ``python -m docs.log_events`` regenerates it."""

from __future__ import annotations

from pathlib import Path

from window_consumer.model.log_events import LogEvent

PAGE = Path(__file__).parent / "log-events.md"
_BEGIN, _END = "<!-- log events -->\n", "<!-- end of log events -->\n"


def table() -> str:
    """Return the table: each id with its meaning."""
    rows = [f"| `{event}` | {event.meaning} |\n" for event in LogEvent]
    return "".join(["| event | meaning |\n", "|---|---|\n", *rows])


def rendered(page: str) -> str:
    """Return the page with the table as it should be."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{table()}{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
