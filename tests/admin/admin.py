"""Shared by tests of the admin address: a made-up board, and requests to it."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attrs import frozen

from window_consumer.admin.board import Board, BoardAddress, CellPlace
from window_consumer.admin.config import AdminConfig
from window_consumer.admin.server import serving
from window_consumer.config.sections.listening import TlsConfig
from window_consumer.engine.guards.breaker_state import BreakerAnswer
from window_consumer.engine.guards.interventions import (
    ConcurrencyAnswer,
    ConcurrencyRequest,
    Intervention,
    InterventionResult,
    PauseRequest,
)
from window_consumer.plan.feature import Pages

TOKEN = "0123456789abcdef"  # noqa: S105 - no secret of anybody


class MadeUpBoard:
    """A board whose content a test sets."""

    def __init__(self, late: int = 0, **fields: Any):
        self.late = late
        """It halts no worker before it was asked this often."""
        self.fields = {"process": "", "time": 1, "workers": [], **fields}
        self.asked: list[str] = []
        self.record_value: dict[str, Any] | None = None
        self.answer: BreakerAnswer | None = BreakerAnswer.OBEYED
        self.concurrency: ConcurrencyAnswer | None = ConcurrencyAnswer.OBEYED
        self.verdict: InterventionResult | None = InterventionResult.SKIPPED

    def windows(self, *, stacks: bool, history: bool) -> dict[str, Any]:
        self.asked.append(f"windows {stacks} {history}")
        return self.fields

    def frame(self, since: float) -> dict[str, Any]:
        self.asked.append(f"frame {since}")
        return self.fields

    def cell(self, at: CellPlace) -> dict[str, Any] | None:
        self.asked.append(f"cell {at.number} {at.offset}")
        return None

    def value(self, at: CellPlace) -> dict[str, Any] | None:
        self.asked.append(f"value {at.partition} {at.offset}")
        return self.record_value

    def halt(self, at: BoardAddress, request: PauseRequest, *, halted: bool) -> bool | None:
        self.asked.append(
            " ".join(filter(None, [f"{at.worker} {at.partition} {halted}", str(request)]))
        )
        is_late = self.asked.count(self.asked[-1]) <= self.late
        return None if is_late else at.worker == "charge"

    def set_concurrency(
        self, at: BoardAddress, request: ConcurrencyRequest
    ) -> ConcurrencyAnswer | None:
        self.asked.append(f"{at.worker} {request.limit}, {request}")
        return self.concurrency if at.worker == "charge" else ConcurrencyAnswer.NO_SUCH_WORKER

    def decide_breaker(self, at: BoardAddress, *, release: bool) -> BreakerAnswer | None:
        self.asked.append(f"{at.worker} breaker: {'release' if release else 'hold'}")
        return self.answer if at.worker == "charge" else BreakerAnswer.NO_SUCH_WORKER

    def intervene(self, at: CellPlace, wanted: Intervention) -> InterventionResult | None:
        self.asked.append(f"{wanted}: {at.worker} {at.partition}@{at.offset}")
        return self.verdict

    def take_samples(self) -> None:
        """Nothing to do."""


@frozen
class Answered:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@frozen
class Asking:
    """Asks one address, as a program does that is no browser."""

    port: int
    tls: ssl.SSLContext | None = None

    def __call__(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> Answered:
        """Ask; ``x_y="z"`` is the header ``x-y``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with self.connected() as connection:
            connection.request(method, path, body, named)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answered(response.status, found, response.read().decode())

    @contextmanager
    def connected(self) -> Iterator[http.client.HTTPConnection]:
        where, start_timeout = ("127.0.0.1", self.port), 60.0
        connection = (
            http.client.HTTPConnection(*where, timeout=start_timeout)
            if self.tls is None
            else http.client.HTTPSConnection(*where, timeout=start_timeout, context=self.tls)
        )
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def asking(
    board: Board | None = None,
    token: str | None = None,
    *,
    values: bool = False,
    pages: Mapping[str, Pages] = MappingProxyType({}),
    **limits: Any,
) -> Iterator[Asking]:
    """Serve a board on a free port of this machine."""
    admin = AdminConfig(listen="127.0.0.1:0", token=token, tls=TlsConfig(), values=values)
    with serving(board or MadeUpBoard(), admin, Path(), pages, **limits) as port:
        yield Asking(port)
