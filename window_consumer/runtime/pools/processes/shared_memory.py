"""The memory that a child process shares with its parent: a few words and token counts.

A child has two shared slots, so that its next slice is ready while it works on one. One token
represents the whole slice: the child takes it to begin, or the parent takes it to give the slice to
another child. There is also one token per record: the child takes one for its next record, and the
parent takes back all that remain, from the end. A record has begun once the child took its token.
Taking a token is one atomic step, so that a process that is killed or stopped midway cannot block
the other.

The child alone writes how many records are finished, how many of those it has reported, and which
of several handlers it called last. The parent writes only ``cancelled``.

A shared number is an unnamed POSIX semaphore; each step is one atomic instruction.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

NUMBER_BYTES: Final = 64
"""The size of a cache line, which is more than a semaphore needs."""

_SEMAPHORES: Any = import_module("_multiprocessing").SemLock
"""The class behind ``multiprocessing.Semaphore``, whose module type checkers don't know."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_SEMAPHORE: Final = 1  # not a mutex
_MOST: Final = 2**31 - 1


class SharedNumber:
    """A number at an offset of a shared mapping. Any process with the mapping may use it.

    ``set`` sets its first value. ``take(False)`` decrements it and returns whether it was above 0;
    ``add()`` increments it. Both are methods of the interpreter's own semaphores, as in
    ``multiprocessing``: 60 ns each, while a read of an eventfd took 265 to 535.
    """

    __slots__ = ("_address", "_memory", "_semaphore", "add", "take")
    take: Callable[[bool], bool]
    add: Callable[[], None]

    def __init__(self, memory: mmap.mmap, offset: int):
        self._memory = memory  # keeps the mapping alive
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(memory, offset))
        # Without a name, the semaphore is the one at this address.
        self._semaphore = _SEMAPHORES._rebuild(self._address, _SEMAPHORE, _MOST, None)  # noqa: SLF001 - as multiprocessing does
        # Never release the object: that would close it, which is only for named semaphores.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._semaphore))
        self.take = self._semaphore.acquire
        self.add = self._semaphore.release

    def set(self, number: int) -> None:
        """Set the number while no process uses it."""
        if _LIBC.sem_init(ctypes.c_void_p(self._address), 1, number):
            error = ctypes.get_errno()
            raise OSError(error, "a count in shared memory cannot be set")

    @property
    def value(self) -> int:
        """The current number."""
        return int(self._semaphore._get_value())  # noqa: SLF001 - as multiprocessing does


_SHARED_SLOTS: Final = 2

_WORD_BYTES: Final = 8
_NUMBERS: Final = 3
_SHARED_SLOT_BYTES: Final = (1 + _NUMBERS) * NUMBER_BYTES
"""One cache line for the words, and one for each number."""

REPORTED, CANCELLED, HANDLER = range(3)
_WORDS: Final = 3

_HANDLER_BITS: Final = 16


class SharedSlot:
    """A place for one slice in a child. Owner: see the module's docstring."""

    __slots__ = ("_whole", "over", "tokens", "words")

    def __init__(self, memory: mmap.mmap, offset: int):
        words = memoryview(memory)[offset : offset + _WORDS * _WORD_BYTES]
        self.words = words.cast("Q")
        self._whole, self.tokens, self.over = (
            SharedNumber(memory, offset + number * NUMBER_BYTES)
            for number in range(1, 1 + _NUMBERS)
        )

    def set_handler(self, number: int) -> None:
        """Record the handler that is called for the current record; numbers begin at 1."""
        self.words[HANDLER] = self.over.value << _HANDLER_BITS | number

    @property
    def handler(self) -> int:
        """The handler that is called for the current record, 0 if none is recorded.

        An earlier record's handler does not count: the current one may have none yet.
        """
        records, number = divmod(self.words[HANDLER], 1 << _HANDLER_BITS)
        return number if records == self.over.value else 0

    def load(self, records: int) -> None:
        """Put a slice in, before the child is notified."""
        for word in range(_WORDS):
            self.words[word] = 0
        self.over.set(0)
        self.tokens.set(records)
        self._whole.set(1)

    def take_whole(self) -> bool:
        """Take the token of the slice; return False if it is already taken."""
        return bool(self._whole.take(False))

    def take_all(self) -> int:
        """Take the tokens of all unclaimed records; return their number."""
        take = self.tokens.take
        taken = 0
        while take(False):
            taken += 1
        return taken


class SharedSlots:
    """The shared slots of one child. The parent makes them, the child opens them by ``fd``.

    The memory has no name in the file system: nothing remains, however both processes end.
    """

    def __init__(self, fd: int | None = None):
        if fd is None:
            fd = os.memfd_create("window-consumer")
            os.truncate(fd, mmap.PAGESIZE)
        self.fd = fd
        memory = mmap.mmap(fd, mmap.PAGESIZE)
        self.shared_slots = tuple(
            SharedSlot(memory, number * _SHARED_SLOT_BYTES) for number in range(_SHARED_SLOTS)
        )

    def close(self) -> None:
        """Close the file. The mapping lives as long as a shared slot."""
        os.close(self.fd)
