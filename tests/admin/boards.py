"""Boards as the page gets them: the state of a shop's worker at a moment."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from time import time
from typing import Any

from tests.admin.admin import MadeUpBoard
from window_consumer.admin.board import CellPlace

CELL = 5
"""Records of a cell."""


def partition(number: int, row: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": {"topic": "orders", "partition": number},
        "level": None,
        "next_offset": 0,
        "slid": 0,
        "row": row,
        "capacity_cells": 8,
        "open": len(row),
        "buffered": 0,
        "failed": 0,
        "bytes": 0,
        "paused": False,
        "halted": False,
        "waits_for_rate": False,
        "hovering_s": 0.0,
        "lag": {"records": 100, "seconds": 1.0},
        **fields,
    }


def call(topic: str = "orders", partition: int = 0, offset: int = 7) -> dict[str, Any]:
    name = {"topic": topic, "partition": partition}
    return {"name": name, "offset": offset, "attempt": 1, "seconds": 12.0, "abandoned": False}


def sample(at_ms: int, **fields: Any) -> dict[str, Any]:
    return {
        "t": at_ms,
        "lag": 100,
        "lag_s": 1.0,
        "busy": 3,
        "limit": 16,
        "breaker": "closed",
        "rate": 250.0,
        "retried": 0.5,
        "moved": {},
        "dead": {},
        "p50_s": 0.01,
        "p95_s": 0.02,
        "p99_s": 0.05,
        **fields,
    }


class Shop(MadeUpBoard):
    """One worker, whose windows a test draws."""

    def __init__(
        self, rows: Sequence[str] = ("",), windows: dict[str, Any] | None = None, **fields: Any
    ):
        """``windows`` and ``fields`` override its snapshot and the other fields."""
        super().__init__()
        now_ms = int(time() * 1000)
        self.drawn: dict[str, Any] = {
            "halted": False,
            "slots": 16,
            "abandoned": 0,
            "limit": None,
            "calls": [],
            "breaker": {"state": "closed", "failed": 0, "calls": 0, "seconds": 0.0, "why": ""},
            "counters": {
                **dict.fromkeys(("processed", "retried", "dead_lettered"), 1),
                "moved_to": {"10s": 3, "1m": 4},
                "dead_by": {"FATAL": 5},
            },
            "partitions": [partition(number, row) for number, row in enumerate(rows)],
            **(windows or {}),
        }
        self.worker: dict[str, Any] = {
            "process": "",
            "name": "charge",
            "group": "shop",
            "handlers": ["charge"],
            "phase": "running",
            "ready": True,
            "silent_s": 0.0,
            "busy_ratio": 0.3,
            "time_to_drain_s": 2.0,
            "snapshot": self.drawn,
            "history": [sample(now_ms - 2000 * index) for index in range(30, 0, -1)],
            **fields,
        }
        self.details: dict[str, Any] | None = self.cell_with("", "in charge")

    @classmethod
    def with_a_call_that_hangs(cls) -> Shop:
        shop = cls(rows=["Hddd"], windows={"calls": [call()]})
        hangs = {"hovering_s": 12.0, "next_offset": 5, "slid": 1, "first_open": 7}
        shop.partitions[0] |= hangs
        shop.details = shop.cell_with("ValueError: broken", "in wait_for_the_bank")
        return shop

    @classmethod
    def with_a_blocked_record(cls) -> Shop:
        shop = cls(rows=["y"])
        shop.details = shop.cell_with("ValueError: broken", "")
        record = {"state": "waits for its next call", "running_s": None, "due_s": 3.0}
        shop.details["records"][0] |= record
        shop.details["calls"] = []
        return shop

    @classmethod
    def evil(cls, text: str, name: str) -> Shop:
        """Whatever may come from outside is this text, or this name."""
        windows = {"limit": {"limit": 4, "why": text}, "calls": [call(topic=name)]}
        shop = cls(rows=["Hd"], windows=windows, name=name, group=text, handlers=[text])
        shop.partitions[0] |= {"name": {"topic": name, "partition": 0}, "hovering_s": 12.0}
        level = partition(1, "w", level=text, name={"topic": name, "partition": 1})
        shop.partitions.append(level)
        now_ms = int(time() * 1000)
        shop.worker["history"] = [
            sample(now_ms - 2000 * index, moved={text: 1.0}, dead={text: 1.0}, breaker=text)
            for index in range(30, 0, -1)
        ]
        shop.drawn["counters"] |= {"moved_to": {text: 3}, "dead_by": {text: 4}}
        shop.details = shop.cell_with(text, text, key=text, headers=[[text, text], ["no", None]])
        shop.record_value = {"form": "text", "bytes": 7, "text": text, "is_cut": True}
        return shop

    @classmethod
    def busy(cls, partitions: int, cells: int) -> Busy:
        return Busy(partitions, cells)

    @staticmethod
    def cell_with(error: str, stack: str, key: str = "anna", **fields: Any) -> dict[str, Any]:
        record = {"offset": 7, "state": "running", "key": key, "attempts": 2, "error": error}
        place = {"topic": "orders", "partition": 0, "offset": 7}
        running = {"attempt": 1, "seconds": 12.0, "abandoned": False}
        record |= {"bytes": 120, "headers": [["tenant", "eu"]], "more_headers": 0, **fields}
        return {
            "number": 1,
            "first_offset": 5,
            "last_offset": 9,
            "count": 5,
            "open": 1,
            "hovering_s": 12.0,
            "calls": [{**place, **running, "process": "", "stack": stack}],
            "records": [{**record, "due_s": None, "running_s": 12.0}],
        }

    @property
    def partitions(self) -> list[dict[str, Any]]:
        """Their windows."""
        reported: list[dict[str, Any]] = self.drawn["partitions"]
        return reported

    def slide(self, rows: Sequence[str]) -> None:
        """Let a cell of each window slide out."""
        for each, row in zip(self.partitions, rows, strict=True):
            next_offset = each["next_offset"] + CELL
            each |= {"row": row, "slid": each["slid"] + 1, "next_offset": next_offset}

    def frame(self, since: float) -> dict[str, Any]:
        history = [each for each in self.worker["history"] if each["t"] > since]
        worker = {**self.worker, "history": history}
        return {"time": int(time() * 1000), "workers": [worker]}

    def cell(self, at: CellPlace) -> dict[str, Any] | None:
        super().cell(at)
        return self.details


class Busy(Shop):
    """Full windows that slide with every frame."""

    def __init__(self, partitions: int, cells: int):
        super().__init__(rows=[""] * partitions)
        self._cells = cells
        self._random = Random(7)

    def frame(self, since: float) -> dict[str, Any]:
        for each in self.partitions:
            gone = self._random.randrange(4)
            row = "".join(self._random.choices("dwry", k=self._cells - gone))
            each |= {"row": row, "capacity_cells": self._cells, "slid": each["slid"] + gone}
        return super().frame(since)
