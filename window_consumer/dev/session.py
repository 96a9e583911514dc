"""The loop of ``dev``: runs the application, and restarts it after each change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from window_consumer.dev.process import DevProcess
from window_consumer.dev.waiting_page import waiting_page
from window_consumer.model.redaction import printable

_MOST_NAMED: Final = 3

WAITING: Final = "It restarts when a file changes."


class DevSession:
    """Keeps an application running with the current code. Owner: the main thread."""

    def __init__(
        self,
        name: str,
        process: DevProcess,
        port: int,
        report: Callable[[str], None],
        open_page: Callable[[str], object],
    ):
        """``report`` prints a line; ``open_page`` gets the page's address at the first start."""
        self._name = name
        self._process = process
        self._port = port
        self._report = report
        self._open_page = open_page
        self._is_open = False
        self._waiting = ExitStack()

    def run(self, changes: Iterable[Collection[Path]], is_stopped: Callable[[], bool]) -> None:
        """Run until ``is_stopped``; ``changes`` yields changed files, or nothing, every moment.

        The first start waits for its first turn, from which on no change is missed.
        """
        is_due = True
        try:
            for changed in changes:
                if is_stopped():
                    return
                if changed:
                    self._report(f"reloading: {_named(changed)}")
                    self._end()
                    is_due = True
                if is_due:
                    self._process.start()
                    is_due = False
                self._take_turn()
        finally:
            self._report("stopping")
            self._end()

    def _take_turn(self) -> None:
        page = self._process.page()
        if page is not None:
            self._report(page)
            if not self._is_open:
                self._is_open = True
                self._open_page(page)
        code = self._process.exit_code()
        if code is not None:
            self._report(f"{self._name} ended (exit code {code}); waiting for a change")
            last_lines = printable(self._process.last_lines())
            waiting = waiting_page(self._port, self._name, WAITING, last_lines)
            self._waiting.enter_context(waiting)

    def _end(self) -> None:
        self._waiting.close()
        self._process.stop()


def _named(files: Collection[Path]) -> str:
    """Name the changed files, relative to the current directory if they are in it."""
    here = Path.cwd()
    names = sorted(
        str(each.relative_to(here) if each.is_relative_to(here) else each) for each in files
    )
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
