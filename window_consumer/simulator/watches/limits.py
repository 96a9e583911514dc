"""Bounds that hold after every turn of a member: records, bytes, slices, copies."""

from __future__ import annotations

from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.copy_queue import MAX_UNACKED
from window_consumer.engine.retry.output import MAX_UNACKED_RESULTS, RESULTS_SHARE
from window_consumer.engine.scheduling.dispatcher import SLICES_PER_SLOT
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import Member
from window_consumer.simulator.watches.call_rate import RandomConcurrency


def check_bounds(history: SimulationHistory, member: Member) -> None:
    """Report a member that holds more than its configuration allows."""
    engine = member.engine
    rules = engine.rules
    held = 0
    for partition in engine.partitions.values():
        held += partition.bytes
        _check_partition(history, member, partition)
    used = engine.budget.used
    if used != held:
        history.violate(f"{member} counts {used} bytes, its partitions {held}")
    # Every partition may take one batch while it holds nothing, or when memory is free: two batches
    # may come before the next tick. One copy may be on its way in any case. Results have their own
    # limit.
    allowed = rules.window_bytes + member.largest_batch * (len(engine.partitions) + 2)
    allowed += _results(history, member)
    if used > allowed:
        history.violate(f"{member} holds {used} bytes, the limit is {rules.window_bytes}")
    out = len(engine.dispatcher.out)
    if out > rules.slots * SLICES_PER_SLOT:
        history.violate(f"{member} has {out} slices out for {rules.slots} slots")
    limiter = engine.slot_limit.adaptive
    if isinstance(limiter, RandomConcurrency):
        if out > max(limiter.highest, member.slices_out):
            history.violate(f"{member} has {out} slices out, the limit was {limiter.highest}")
        limiter.highest = limiter.limit
    member.slices_out = out
    abandoned = len(engine.dispatcher.abandoned)
    if abandoned > history.plan.engine.stall.max_abandoned:
        history.violate(f"{member} has abandoned {abandoned} calls")
    unacked = len(engine.failed_records.unacked)
    if unacked > MAX_UNACKED:
        history.violate(f"{member} counts {unacked} copies without an answer")


def check_start(history: SimulationHistory, member: Member, slice_: Slice) -> None:
    """Report a slice that starts although too many results wait for their acks.

    One record may always start: as the sample of an outage, or to find the record that ends the
    process. Records committed before their calls start in any case.
    """
    engine = member.engine
    is_suspect = HoldReason.CRASH_SUSPECTS in slice_.partition.holds
    is_sample = not engine.breaker.lets_start and len(engine.dispatcher.out) <= 1
    if is_suspect or is_sample or not history.plan.repeats:
        return
    held, allowed = engine.output.bytes, engine.rules.window_bytes * RESULTS_SHARE
    if held > allowed:
        history.violate(
            f"{member} starts more calls with {held} bytes of results, the limit is {allowed:g}"
        )


def _results(history: SimulationHistory, member: Member) -> int:
    """Return how many bytes of results are held."""
    output = member.engine.output
    if output.bytes < 0:
        history.violate(f"{member} released results twice")
    if not 0 <= output.unacked <= MAX_UNACKED_RESULTS:
        history.violate(f"{member} counts {output.unacked} results without an answer")
    return output.bytes


def _check_partition(history: SimulationHistory, member: Member, partition: Partition) -> None:
    rules = member.engine.rules
    cells = partition.window.cells
    place = f"{member}: {partition.name}"
    if len(cells) > rules.window_cells:
        history.violate(f"{place} has {len(cells)} cells")
    if any(len(cell.states) > rules.cell_records for cell in cells):
        history.violate(f"{place} has a cell with more than {rules.cell_records} records")
    if partition.bytes < 0 or partition.slices < 0:
        history.violate(f"{place} released something twice")
