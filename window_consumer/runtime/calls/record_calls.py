"""Calls for a slice of single records, and the outcomes from their results."""

from __future__ import annotations

import sys

from window_consumer.engine.scheduling.lanes import LaneOf
from window_consumer.engine.scheduling.slices import Work
from window_consumer.model.errors import Skip
from window_consumer.model.record import Message, Record
from window_consumer.runtime.calls.caller import Caller, record_raised
from window_consumer.runtime.calls.result_guard import record_results
from window_consumer.runtime.context import Slot

__handler_slot__ = True  # its frames are no part of a failure, see runtime/stack.py


def call_each(slice_: Work, caller: Caller, slot: Slot) -> None:
    """Call the handler for each record of the slice, except those taken back meanwhile.

    The record object is reused for the next message unless the handler kept it, which its reference
    count shows. Creating one for each message takes longer than everything else here (84 ns a
    record against 47).
    """
    references = sys.getrefcount
    handler = caller.handler
    call = slice_.call
    slot.record = record = Record()
    record._call = call
    nobody_else = references(record)
    for message in slice_.unclaimed:
        record._message = message
        try:
            returned = handler(record)
            if (
                returned is not None
                and record_results(slice_, (message,), returned)
                and slice_.lane_of is not None
            ):
                _call_around(slice_, caller, slot, slice_.lane_of, message)
                break
        except Skip as error:
            slice_.deviate().skip(message, error)
        except BaseException as error:
            if record_raised(slice_, message, error, caller) and slice_.lane_of is not None:
                _call_around(slice_, caller, slot, slice_.lane_of, message)
                break
        if references(record) != nobody_else:
            slot.record = record = Record()
            record._call = call
    slot.record = None


def _call_around(slice_: Work, caller: Caller, slot: Slot, lane_of: LaneOf, first: Message) -> None:
    """Call the handler for the rest, but hold back the lanes of unfinished records.

    A record is unfinished if it failed or its results are not acked.
    """
    held_lanes = {lane_of(first)}
    for message in slice_.unclaimed:
        lane = lane_of(message)
        if lane is not None and lane in held_lanes:
            slice_.deviate().held.append(message)
            continue
        slot.record = record = Record.of(message, slice_.call)
        try:
            returned = caller.handler(record)
            if returned is not None and record_results(slice_, (message,), returned):
                held_lanes.add(lane)
        except Skip as error:
            slice_.deviate().skip(message, error)
        except BaseException as error:
            if record_raised(slice_, message, error, caller):
                held_lanes.add(lane)
