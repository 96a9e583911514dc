"""The thread of a child process: it starts the child, carries messages, and waits for the end."""

from __future__ import annotations

import os
import select
import traceback
from collections import deque
from collections.abc import Sequence
from traceback import FrameSummary
from typing import Protocol

from window_consumer.model.errors import RunError, WorkerStoppedError
from window_consumer.runtime.figures.stack_dump import ChildPicture, ChildState
from window_consumer.runtime.pools.processes.child_actions import Post
from window_consumer.runtime.pools.processes.child_logs import LogLine, log
from window_consumer.runtime.pools.processes.child_process import Child, end_in_words
from window_consumer.runtime.pools.processes.child_slot import ChildSlot, SlotState
from window_consumer.runtime.pools.processes.serialization import packed, pickled
from window_consumer.runtime.pools.processes.shared_memory import SharedSlot
from window_consumer.runtime.stack import handlers_lines
from window_consumer.runtime.threads import WatchedThread


class ChildEvents(Protocol):
    """Receives the events of a slot's child. Called on the child's thread."""

    def on_spawned(self, slot: int, pid: int, shared_slots: Sequence[SharedSlot]) -> None:
        """The process was started."""

    def on_message(self, slot: int, message: object) -> None:
        """The child has sent a message. An exception means that it is unreadable."""

    def on_tick(self, slot: int) -> float | None:
        """Return the maximum number of seconds until the next call; None without a limit."""

    def on_exit(self, slot: int, end: str, trouble: str) -> None:
        """The child has ended; a ``trouble`` is the unreadable message that caused it."""

    def on_lost(self, slot: int, error: WorkerStoppedError) -> None:
        """The thread is dying of an error."""


class ChildThread:
    """A child process and its thread. Owner: the pool's lock; the thread does all I/O.

    Handlers may write to any file, so unreadable messages are expected: the child is killed.
    """

    def __init__(self, slot: int, name: str, equip: bytes, leave_s: float, events: ChildEvents):
        """Take ``equip``, a pickled ``child_main.Equip``.

        A child that closes its pipe gets ``leave_s`` seconds to end.
        """
        self.child: Child | None = None
        """None until it was started."""
        self._slot = slot
        self._name = name
        self._equip = equip
        self._leave_s = leave_s
        self._events = events
        self._posted: deque[Post | None] = deque()
        """Slices to send; None ends the child after everything before it."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._sleeps = True
        """Whether the thread must be woken."""
        self._is_killed = False
        self._thread: WatchedThread | None = None

    # ---- for the pool

    def start(self, delay_s: float, previous: ChildThread | None) -> None:
        """Start the child after a delay, once the previous one of its slot is gone."""
        name = f"{self._name}-keeper"
        self._thread = WatchedThread(self._run, name, self._on_death, (delay_s, previous))
        self._thread.start()

    def post(self, post: Post) -> None:
        """Send a slice to the child."""
        self._posted.append(post)
        self._wake_up()

    def end(self) -> None:
        """Let the child end after its current work."""
        self._posted.append(None)
        self._wake_up()

    def kill(self) -> None:
        """End the child at once, started or not."""
        self._is_killed = True
        if self.child is None:
            self._wake_up()
        else:
            self.child.kill()

    def stack(self) -> Sequence[FrameSummary]:
        """Return where the child's handler stands; empty without an answer of the child."""
        return () if self.child is None else handlers_lines(self.child.frames())

    def ask_for_frames(self, slot: ChildSlot) -> bool:
        """Request the stack of the child of ``slot``; return False where it runs no handler."""
        if self.child is None or slot.running is None:
            return False
        self.child.ask_for_frames()
        return True

    def picture(self, slot: ChildSlot, deadline: float | None) -> ChildPicture:
        """Return what the child does; with a ``deadline``, wait until then for its stack."""
        child, running = self.child, slot.running
        if child is None or slot.state is SlotState.STARTING:
            return ChildPicture(slot.name, slot.pid, ChildState.STARTING)
        if running is None:
            state = ChildState.RESTING if slot.rests else ChildState.IDLE
            return ChildPicture(slot.name, slot.pid, state)
        remote_slice, message = running
        return ChildPicture(
            slot.name,
            slot.pid,
            ChildState.RUNNING,
            (remote_slice.slice_.partition.name, message.offset()),
            slot.handler_of(remote_slice),
            () if deadline is None else handlers_lines(child.asked_frames(deadline)),
        )

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until child and thread have ended; return False on a timeout."""
        assert self._thread is not None
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _wake_up(self) -> None:
        if self._sleeps:
            self._sleeps = False
            os.eventfd_write(self._wake, 1)

    # ---- the thread

    def _run(self, delay_s: float, previous: ChildThread | None) -> None:
        if previous is not None:
            previous.join()
        if select.select([self._wake], [], [], delay_s)[0]:  # it is no longer needed
            self._events.on_exit(self._slot, "was not started", "")
        else:
            self.child = child = Child(self._name, self._equip, self._wake)
            if self._is_killed:
                child.kill()
            shared_slots = child.slot_memory.shared_slots
            self._events.on_spawned(self._slot, child.process.pid, shared_slots)
            self._events.on_exit(self._slot, *self._serve(child))
        self._close()

    def _on_death(self, error: WorkerStoppedError) -> None:
        self._events.on_lost(self._slot, error)
        self._close()

    def _close(self) -> None:
        if self.child is not None:
            self.child.close()
            self.child = None  # it keeps the shared memory
        os.close(self._wake)

    def _serve(self, child: Child) -> tuple[str, str]:
        """Carry messages until the child has ended; return the arguments of ``on_exit``."""
        while True:
            timeout_s = self._events.on_tick(self._slot)
            self._send_posted(child)
            self._sleeps = True
            has_news = child.wait(0.0 if self._posted else timeout_s)
            self._sleeps = False
            if not has_news:
                continue
            try:
                for message in child.receive():
                    if isinstance(message, LogLine):
                        log(message)
                    else:
                        self._events.on_message(self._slot, message)
            except EOFError:
                return end_in_words(child.wait_for_end(self._leave_s)), ""
            except Exception:
                # The pool continues, because only it has the child's records.
                child.wait_for_end(0.0)
                return "was killed because of an unreadable message", traceback.format_exc()

    def _send_posted(self, child: Child) -> None:
        while self._posted:
            post = self._posted.popleft()
            if post is None:
                child.send(b"")
                continue
            try:
                data = pickled(packed(post.serial, post.shared_slot, post.slice_, post.messages))
            except Exception as error:
                first = f"{post.slice_.partition.name}@{post.messages[0].offset()}"
                text = f"{len(post.messages)} records from {first} on cannot be sent to it"
                raise RunError(text) from error
            child.send(data)
