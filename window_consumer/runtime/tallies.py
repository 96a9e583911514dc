"""Numbers in shared memory that several processes take from and add to, one at a time.

A *tally* is a POSIX semaphore without a name. Each step is one atomic instruction of the processor:
a process that is killed or stopped between two of them holds nothing.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

TALLY_BYTES: Final = 64
"""A line of the processor's cache: more than a semaphore needs."""

_SEMAPHORES: Any = import_module("_multiprocessing").SemLock
"""The class behind ``multiprocessing.Semaphore``; type checkers do not know its module."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_SEMAPHORE: Final = 1  # not a mutex
_MOST: Final = 2**31 - 1


class Tally:
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
