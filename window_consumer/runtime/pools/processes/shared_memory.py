"""The memory that a child process shares with its parent: a few words and token counts.

A child has two *berths*, so that its next slice is ready while it works on one. One token stands
for the whole slice: the child takes it to begin, or the parent takes it to give the slice to
another slot. There is also one token per record: the child takes one for the next record, the
parent takes all that are left, counted from the end. Taking a token is one atomic step, so that
no process that is killed or stopped in the middle can block the other. A record whose token the
child took has begun.

The child alone writes how many records are finished, how many of those it has reported, and which
of several handlers it called last. The parent writes only ``cancelled``.

A *tally* is an unnamed POSIX semaphore; each step is one atomic instruction.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

NUMBER_BYTES: Final = 64
"""A line of the processor's cache: more than a semaphore needs."""

_SEMAPHORES: Any = import_module("_multiprocessing").SemLock
"""The class behind ``multiprocessing.Semaphore``; type checkers do not know its module."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_SEMAPHORE: Final = 1  # not a mutex
_MOST: Final = 2**31 - 1


class SharedNumber:
    """A number that lives at a place of a shared mapping. Whoever has the mapping may use it.

    It starts as ``set`` says. ``take(False)`` takes one away and tells whether there was one;
    ``add()`` adds one. Both are methods of the interpreter's own semaphores, those behind
    ``multiprocessing``: 60 ns each, where a read of an eventfd took 265 to 535.
    """

    __slots__ = ("_address", "_memory", "_semaphore", "add", "take")
    take: Callable[[bool], bool]
    add: Callable[[], None]

    def __init__(self, memory: mmap.mmap, offset: int):
        self._memory = memory  # mapped for as long as somebody may look at it
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(memory, offset))
        # Without a name it is that of the address.
        self._semaphore = _SEMAPHORES._rebuild(self._address, _SEMAPHORE, _MOST, None)  # noqa: SLF001 - as multiprocessing does
        # It is never let go of: that would close it, which is for semaphores with a name.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._semaphore))
        self.take = self._semaphore.acquire
        self.add = self._semaphore.release

    def set(self, number: int) -> None:
        """Begin with a number; nobody may use it meanwhile."""
        if _LIBC.sem_init(ctypes.c_void_p(self._address), 1, number):
            error = ctypes.get_errno()
            raise OSError(error, "a count in shared memory cannot be set")

    @property
    def value(self) -> int:
        """How many there are now."""
        return int(self._semaphore._get_value())  # noqa: SLF001 - as multiprocessing does


BERTHS: Final = 2

_WORD_BYTES: Final = 8
_NUMBERS: Final = 3
_SHARED_SLOT_BYTES: Final = (1 + _NUMBERS) * NUMBER_BYTES
"""Words, and tallies: a line of the processor's cache for each of them."""

TOLD, CANCELLED, HANDLER = range(3)
_WORDS: Final = 3

_HANDLER_BITS: Final = 16


class SharedSlot:
    """A place for one slice on its way through a child. Owner: see the module's docstring."""

    __slots__ = ("_whole", "over", "tokens", "words")

    def __init__(self, memory: mmap.mmap, offset: int):
        words = memoryview(memory)[offset : offset + _WORDS * _WORD_BYTES]
        self.words = words.cast("Q")
        self._whole, self.tokens, self.over = (
            SharedNumber(memory, offset + number * NUMBER_BYTES)
            for number in range(1, 1 + _NUMBERS)
        )

    def set_handler(self, number: int) -> None:
        """Note which handler is called for the record that the child is on; numbers begin at 1."""
        self.words[HANDLER] = self.over.value << _HANDLER_BITS | number

    @property
    def handler(self) -> int:
        """Which handler is called for the record that the child is on, 0 where that is not noted.

        What was noted for an earlier record does not count: no handler may be chosen yet.
        """
        records, number = divmod(self.words[HANDLER], 1 << _HANDLER_BITS)
        return number if records == self.over.value else 0

    def load(self, records: int) -> None:
        """Put a slice in, before the child hears of it."""
        for word in range(_WORDS):
            self.words[word] = 0
        self.over.set(0)
        self.tokens.set(records)
        self._whole.set(1)

    def take_whole(self) -> bool:
        """Take the token of the slice; False where somebody has it."""
        return bool(self._whole.take(False))

    def take_all(self) -> int:
        """Take the tokens of all records that nobody has claimed; return how many."""
        take = self.tokens.take
        taken = 0
        while take(False):
            taken += 1
        return taken


class SharedSlots:
    """The berths of one child. Made by the parent, joined by the child with ``fd``.

    It has no name in the file system: nothing stays behind, however both of them end.
    """

    def __init__(self, fd: int | None = None):
        if fd is None:
            fd = os.memfd_create("window-consumer")
            os.truncate(fd, mmap.PAGESIZE)
        self.fd = fd
        memory = mmap.mmap(fd, mmap.PAGESIZE)
        self.shared_slots = tuple(
            SharedSlot(memory, number * _SHARED_SLOT_BYTES) for number in range(BERTHS)
        )

    def close(self) -> None:
        """Let go of it. The mapping stays for as long as somebody has a berth."""
        os.close(self.fd)
