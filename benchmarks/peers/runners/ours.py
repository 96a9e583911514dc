"""window_consumer, as ``window-consumer run`` runs it."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.runners.noting_confluent import hand_over_note
from benchmarks.peers.runners.trial import begin


def main() -> None:
    """Handle the records in a worker's slots, or in tasks with ``kind=async``."""
    trial = begin()
    hand_over_note(trial)
    from benchmarks import framework  # noqa: PLC0415 - it takes the client's Consumer when imported
    from benchmarks.workloads import TopicSpec, Workload  # noqa: PLC0415 - as framework

    handle, handle_async = trial.handler(), trial.coroutine()

    def on_record(record: Any) -> None:
        handle(record.value)

    async def on_record_async(record: Any) -> None:
        await handle_async(record.value)

    async def on_record_untimed(record: Any) -> None:
        handle(record.value)

    workload = Workload(
        "peers",
        "",
        TopicSpec(trial.records),
        ordering=trial.options["ordering"],  # type: ignore[arg-type] # the worker checks it
        slots=int(trial.options.get("concurrency", trial.slots)),
    )
    # A second coroutine would cost too much where the handler does nothing.
    coroutine = on_record_async if trial.timed else on_record_untimed
    handler = coroutine if trial.options.get("kind") == "async" else on_record
    app, plan = framework.planned(trial.bootstrap, trial.topic, trial.group, workload, handler)
    running = app.start_plan(plan, start_timeout=framework.START_S)
    trial.over.wait()
    framework.end(running)
    trial.answer("window-consumer", "confluent-kafka")


if __name__ == "__main__":
    main()
