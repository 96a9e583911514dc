"""Where a child process and its parent meet: a few words of shared memory and a count of tokens.

A child has two *berths*, so that its next slice lies ready while it works on one. One token stands
for the whole slice: the child takes it when it begins, or the parent, to give the slice to somebody
else. Beside it there is one token a record. Whoever wants a record takes a token: the child one,
for the first record that nobody has; the parent all that are left, for as many from the end. Taking
is one read of an eventfd, which the kernel makes atomic: a record goes to one side, and
neither a child that dies nor one that is stopped in the middle can hold anything up.

What the child did is in words that only it writes: how many records it has begun, how many are
over, of how many it has told that their handler did not just return. The parent writes only
``cancelled``.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Final

BERTHS: Final = 2

_WORDS: Final = 8
"""A line of the processor's cache for each berth."""

BEGUN, OVER, TOLD, CANCELLED = range(4)


class Berth:
    """A place for one slice on its way through a child. Owner: see the module's docstring."""

    __slots__ = ("_whole", "tokens", "words")

    def __init__(self, words: memoryview, whole: int, tokens: int):
        self.words = words
        self._whole = whole
        self.tokens = tokens
        """The eventfd."""

    def load(self, records: int) -> None:
        """Put a slice in, before the child hears of it."""
        for word in range(len(self.words)):
            self.words[word] = 0
        os.eventfd_write(self.tokens, records)
        os.eventfd_write(self._whole, 1)

    def take_whole(self) -> bool:
        """Take the token of the slice; False where somebody has it."""
        try:
            os.eventfd_read(self._whole)
        except BlockingIOError:
            return False
        return True

    def take_all(self) -> int:
        """Take the tokens of all records that nobody has claimed; return how many."""
        taken = 0
        try:
            while True:
                os.eventfd_read(self.tokens)
                taken += 1
        except BlockingIOError:
            return taken


class Harbour:
    """The berths of one child. Made by the parent, joined by the child with ``fds``.

    It has no name in the file system: nothing stays behind, however both of them end.
    """

    def __init__(self, fds: Sequence[int] = ()):
        if fds:
            memory, *tokens = fds
        else:
            memory = os.memfd_create("window-consumer")
            os.truncate(memory, mmap.PAGESIZE)
            flags = os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC
            tokens = [os.eventfd(0, flags) for _ in range(2 * BERTHS)]
        self.fds = (memory, *tokens)
        self._memory = mmap.mmap(memory, mmap.PAGESIZE)
        self._words = memoryview(self._memory).cast("Q")
        pairs = zip(tokens[::2], tokens[1::2], strict=True)
        self.berths = tuple(
            Berth(self._words[number * _WORDS : (number + 1) * _WORDS], *pair)
            for number, pair in enumerate(pairs)
        )

    def close(self) -> None:
        """Let go of everything; nobody may touch a berth any more."""
        for berth in self.berths:
            berth.words.release()
        self._words.release()
        self._memory.close()
        for fd in self.fds:
            os.close(fd)
