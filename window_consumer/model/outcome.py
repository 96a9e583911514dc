"""The outcomes of records: one row of a table for each.

Modules that count, show, trace or audit outcomes read the table at import. A new outcome is a new
row here, and the module that produces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal

from attrs import define, field, frozen


@frozen(eq=False, kw_only=True)
class Outcome:
    """How a delivered record ended; ``OPEN`` says that it has not.

    Its number is a byte of a cell's state array, its step and its tier are strings on the wire:
    never reuse them. ``OPEN`` must be 0, so that a search for a zero byte finds open records.
    """

    OPEN: ClassVar[Outcome]
    DONE: ClassVar[Outcome]
    MOVED: ClassVar[Outcome]
    DEAD_LETTERED: ClassVar[Outcome]
    EXPIRED: ClassVar[Outcome]
    SKIPPED: ClassVar[Outcome]
    FILTERED: ClassVar[Outcome]
    DEDUPLICATED: ClassVar[Outcome]
    PARKED: ClassVar[Outcome]
    ROTATED: ClassVar[Outcome]
    DELAYED: ClassVar[Outcome]
    CANCELLED: ClassVar[Outcome]
    DROPPED: ClassVar[Outcome]
    LOST: ClassVar[Outcome]
    EARLIER: ClassVar[Outcome]

    number: int
    """From 0 to 255."""
    byte: bytes = field(init=False, repr=False)
    """The number as a state of a cell."""
    name: str
    """Lowercase, as in a backfill's table."""
    words: str
    """Its words in the log, in ``top``, on the page, and in tests."""
    cell_words: str = ""
    """As the state of a record in its cell; ``words`` if empty."""
    counter: str = ""
    """The field of ``Counters``; several outcomes may share one."""
    metric: str = ""
    """Its metric without ``window_consumer.``; empty if another outcome with its counter has it."""
    help: str = ""
    """The help of that metric."""
    step: str = ""
    """The step in the message trace; empty if it leaves no event."""
    tier: str = ""
    """The tier in the message audit; empty if it is not counted there."""
    end: Literal["good", "moved", "bad"] = "good"
    """Whether the record's journey ends well, continues in another topic, or ends badly."""
    calls_handler: bool = True
    """Whether a handler was called for the record."""
    is_progress: bool = True
    """Whether it counts as work that this worker has finished, in its rate and its last line."""
    is_common: bool = False
    """Whether figures show it even at zero."""
    is_beside_done: bool = False
    """Whether ``top`` and the page show its count beside the processed records."""

    @byte.default
    def _byte(self) -> bytes:
        return bytes([self.number])

    def __repr__(self) -> str:
        return f"<Outcome {self.name}>"

    def __reduce__(self) -> tuple[object, tuple[int]]:
        """Pickle the row as a reference, so that another process finds its own."""
        return of_number, (self.number,)


OUTCOMES: Final[list[Outcome]] = []
"""All rows but ``OPEN``, in the order in which reports show them."""

_BY_NUMBER: Final[dict[int, Outcome]] = {}


def add(row: Outcome) -> Outcome:
    """Add a row to the table; raise ValueError if its number or name is taken.

    Call it before modules that read the table are imported.
    """
    if row.number in _BY_NUMBER or any(row.name == each.name for each in OUTCOMES):
        raise ValueError(f"the number or the name of {row!r} is taken")
    _BY_NUMBER[row.number] = row
    if row.number:
        OUTCOMES.append(row)
    return row


def of_number(number: int) -> Outcome:
    """Return a row by its number; for an unknown one, a row that only names the number."""
    known = _BY_NUMBER.get(number)
    if known is not None:
        return known
    return Outcome(number=number, name=f"outcome_{number}", words=f"outcome {number}")


Outcome.OPEN = add(Outcome(number=0, name="open", words="open", is_progress=False))
Outcome.DONE = add(
    Outcome(
        number=1,
        name="done",
        words="done",
        counter="processed",
        metric="records.processed",
        help="Records whose handler returned.",
        step="processed",
        tier="finished",
        is_common=True,
    )
)
# Its copy is in a retry topic.
Outcome.MOVED = add(
    Outcome(
        number=6,
        name="moved",
        words="moved",
        cell_words="moved to a retry topic",
        counter="moved",
        metric="records.moved",
        help="Records whose copy in the retry topic of a level was acked.",
        step="retried",
        tier="retried",
        end="moved",
        is_common=True,
    )
)
Outcome.DEAD_LETTERED = add(
    Outcome(
        number=3,
        name="dead_lettered",
        words="dead-lettered",
        counter="dead_lettered",
        metric="records.dead_lettered",
        help="Records whose copy in the dead-letter topic was acked, by reason.",
        step="dead_lettered",
        tier="dead_lettered",
        end="bad",
        is_common=True,
    )
)
# It was older than its time to live: dead-lettered or dropped.
Outcome.EXPIRED = add(
    Outcome(
        number=7,
        name="expired",
        words="expired",
        counter="expired",
        metric="records.expired",
        help="Records that were older than their time to live, dead-lettered or dropped.",
        step="expired",
        tier="expired",
        end="bad",
        calls_handler=False,
    )
)
# Its handler raised Skip, or a user skipped it.
Outcome.SKIPPED = add(
    Outcome(
        number=2,
        name="skipped",
        words="skipped",
        counter="skipped",
        metric="records.skipped",
        help="Records whose handler raised Skip, that no handler takes, with otherwise: skip, or"
        " that a person skipped.",
        step="skipped",
        tier="filtered",
    )
)
# It matches none of the handlers, and needs no action.
Outcome.FILTERED = add(
    Outcome(
        number=8,
        name="filtered",
        words="skipped",
        cell_words="for none of the handlers",
        counter="skipped",
        step="filtered",
        tier="filtered",
        calls_handler=False,
    )
)
# The database already holds its effect.
Outcome.DEDUPLICATED = add(
    Outcome(
        number=9,
        name="deduplicated",
        words="deduplicated",
        counter="deduplicated",
        metric="records.deduplicated",
        help="Records whose effect the database already held: no handler was called.",
        step="deduplicated",
        tier="deduplicated",
        calls_handler=False,
        is_beside_done=True,
    )
)
# Its key waits for an earlier record in the ladder: a copy in the park topic was acked.
Outcome.PARKED = add(
    Outcome(
        number=10,
        name="parked",
        words="parked",
        cell_words="moved to the park topic",
        counter="parked",
        metric="records.parked",
        help="Records whose copy in the park topic was acked, behind an earlier one of their key.",
        step="parked",
        tier="retried",
        end="moved",
        calls_handler=False,
    )
)
# It still waits for its turn in the park topic: a copy at that topic's end was acked. Each may do
# so every few seconds, so it leaves no event.
Outcome.ROTATED = add(
    Outcome(
        number=12,
        name="rotated",
        words="rotated",
        cell_words="moved to the end of the park topic",
        counter="rotated",
        metric="records.rotated",
        help="Parked records whose copy at the end of the park topic was acked, to make room in a"
        " window where no record could start.",
        tier="retried",
        end="moved",
        calls_handler=False,
        is_progress=False,
    )
)
# It is not due: a copy in a level of the delay service was acked.
Outcome.DELAYED = add(
    Outcome(
        number=11,
        name="delayed",
        words="delayed",
        cell_words="moved to a level of the delay service",
        counter="delayed",
        metric="records.delayed",
        help="Records of the delay service whose copy in a level was acked.",
        step="delayed",
        tier="retried",
        end="moved",
        calls_handler=False,
    )
)
# Its sender has cancelled it.
Outcome.CANCELLED = add(
    Outcome(
        number=13,
        name="cancelled",
        words="cancelled",
        counter="cancelled",
        metric="records.cancelled",
        help="Records of the delay service that were cancelled before they were due.",
        step="cancelled",
        tier="cancelled",
        calls_handler=False,
    )
)
Outcome.DROPPED = add(
    Outcome(
        number=4,
        name="dropped",
        words="dropped",
        counter="dropped",
        metric="records.dropped",
        help="Records that were dropped after their last attempt, with when_spent: drop or"
        " delivery: at_most_once.",
        step="dropped",
        tier="dropped",
        end="bad",
    )
)
# Committed, and its call had not ended when its partition was given up.
Outcome.LOST = add(
    Outcome(
        number=14,
        name="lost",
        words="lost",
        cell_words="lost with delivery: at_most_once",
        counter="lost",
        metric="records.lost",
        help="Records that were committed with delivery: at_most_once, and whose calls had not"
        " ended when their partition was given up.",
        step="lost",
        tier="dropped",
        end="bad",
    )
)
# Finished before this assignment began, according to the commit's metadata.
Outcome.EARLIER = add(
    Outcome(
        number=5,
        name="earlier",
        words="finished before",
        counter="earlier",
        metric="records.earlier",
        help="Records that were read again and not called again: they were finished before.",
        calls_handler=False,
        is_progress=False,
    )
)


def counters(*, progress: bool = False) -> tuple[str, ...]:
    """Return the names of outcomes' counters, each once; optionally only those of progress."""
    rows = (row for row in OUTCOMES if row.counter and (row.is_progress or not progress))
    return tuple(dict.fromkeys(row.counter for row in rows))


if TYPE_CHECKING:

    @define
    class OutcomeCounters:
        """Declares the counters that code names, for type checkers; the table may have more."""

        processed: int = 0
        moved: int = 0
        dead_lettered: int = 0
        expired: int = 0
        skipped: int = 0
        deduplicated: int = 0
        parked: int = 0
        rotated: int = 0
        delayed: int = 0
        cancelled: int = 0
        dropped: int = 0
        lost: int = 0
        earlier: int = 0
