"""An Engine whose handlers return records to produce, driven by hand."""

from __future__ import annotations

from typing import Any

from tests.engine.driver import Driven
from window_consumer.engine.decisions import Decisions
from window_consumer.engine.retry.output import Production
from window_consumer.engine.scheduling.slice_results import RecordsReturned
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.produce import Produce

LOST = PublishFailedError("copy to invoices: no answer", why="no answer")
REFUSED = PublishFailedError("copy to invoices: unknown", refused=True, why="unknown topic")
TOO_LARGE = PublishFailedError("copy to invoices: large", too_large=True, why="too large")


def invoice(number: int = 0, **parts: Any) -> Produce:
    return Produce("invoices", f"k{number}", f"v{number}", **parts)


class ProducingDriven(Driven):
    """Keeps records to send until the test answers."""

    def __init__(self, *arguments: Any, **rules: Any):
        self.sending: list[tuple[Production, int]] = []
        """Results on their way, in the order of sending: of which call, and which of them."""
        super().__init__(*arguments, **rules)

    def tick(self, seconds: float = 0.0) -> Decisions:
        decisions = super().tick(seconds)
        for production in decisions.produce:
            self.sending += [(production, index) for index in production.to_send]
        return decisions

    def produce(self, slice_: Slice, results: dict[int, list[Produce]]) -> None:
        """Let a slot run the rest of a slice; the calls for these offsets return results."""
        held = set()
        for message in self.claim(slice_):
            lane = slice_.lane_of(message) if slice_.lane_of else None
            if lane is not None and lane in held:
                slice_.deviate().held.append(message)
            elif message.offset() in results:
                found = results[message.offset()]
                slice_.deviate().returned.append(RecordsReturned((message,), found))
                held.add(lane)
        self.finish(slice_)

    def produce_all(self, *results: Produce) -> None:
        """Let every record that is out return these results, and send them."""
        for slice_ in list(self.out):
            self.produce(slice_, {m.offset(): list(results) for m in slice_.messages})
        self.tick()

    def answer(self, error: PublishFailedError | None = None, place: int = 0) -> None:
        """Let the broker answer for one of the results that are on their way."""
        production, index = self.sending.pop(place)
        self.engine.on_produced(production, index, error, self.now)

    def answer_all(self, error: PublishFailedError | None = None) -> None:
        while self.sending:
            self.answer(error)

    @property
    def sent(self) -> list[Produce]:
        return [production.results[index] for production, index in self.sending]
