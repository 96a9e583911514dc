"""The ids of log lines: programs and tests rely on them, the texts may change.

Each line of the package carries one as ``extra={"event": ...}``; ``--log-format json`` prints it as
``event``. An id is ``subject.past_participle`` and never changes. The table in docs/log-events.md
is generated from this module.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Self


class LogEvent(StrEnum):
    """What a log line reports; ``meaning`` describes it."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """Create a member from its id and meaning."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    # Start and stop of the process
    BROKER_AWAITED = "broker.awaited", "no broker answers; the start keeps trying"
    TOKEN_AWAITED = ("token.awaited", "there is no OAuth token; the start keeps trying")
    TOKEN_REFUSED = "token.refused", "a login, or the application's function, got no OAuth token"
    START_CANCELLED = "start.cancelled", "a stop was requested before the start was complete"
    STOP_REQUESTED = "stop.requested", "a signal requested a stop; workers drain"
    STOP_OVERRUN = "stop.overrun", "the stop exceeded its time; the process exits at once"
    CLEANUP_FAILED = "cleanup.failed", "a service beside the workers did not stop properly"
    LIFESPAN_ENDED = "lifespan.ended", "the lifespan ended by itself; all workers drain"
    LIFESPAN_FAILED = "lifespan.failed", "the lifespan raised on exit"
    SUPERVISOR_CRASHED = "supervisor.crashed", "the supervisor died: a bug"
    PROCESS_FROZEN = (
        "process.frozen",
        "the process was frozen; its partitions may have other owners",
    )
    REPLICA_STARTED = "replica.started", "a replica has started"
    REPLICA_CRASHED = "replica.crashed", "a replica ended by itself and is restarted"
    REPLICAS_STOPPED = "replicas.stopped", "all replicas are asked to stop"
    REPLICA_ENDED = "replica.ended", "a replica ended as requested"
    REPLICA_KILLED = "replica.killed", "a replica did not end in time and is killed"

    # Workers
    CONCURRENCY_EXCEEDED = "concurrency.exceeded", "a worker has more processes than cores"
    CONCURRENCY_CHANGED = (
        "concurrency.changed",
        "the adaptive concurrency moved by a quarter or more",
    )
    CONCURRENCY_SET = "concurrency.set", "a user set a worker's concurrency, or ended that"
    WORKER_STOPPED = "worker.stopped", "the summary of a worker that has ended"
    WORKER_FAILED = "worker.failed", "a worker ended with an error"
    WORKER_CRASHED = "worker.crashed", "a bug ended a worker"
    WORKER_GIVEN_UP = "worker.given_up", "a worker decided to stop by itself"
    WORKER_RESTARTED = "worker.restarted", "a worker is replaced; threads with hanging calls remain"
    READING_PAUSED = "reading.paused", "a user paused a worker or a partition"
    READING_RESUMED = "reading.resumed", "a user resumed a worker or a partition"
    REQUEST_FAILED = "request.failed", "the poll thread could not answer a request: a bug"
    OBSERVER_FAILED = "observer.failed", "telemetry lost an event; nothing else is affected"

    # Group, topics and positions
    CLIENT_LOGGED = "client.logged", "a line of the client library"
    CLIENT_FAILED = "client.failed", "the client reports an error and tries to recover"
    CLIENT_REPLACED = "client.replaced", "a client lost the cluster and is replaced"
    CLIENT_LEFT_OPEN = "client.left_open", "leaving the group took too long; the session times out"
    PROTOCOL_DOWNGRADED = "protocol.downgraded", "the brokers have no consumer group protocol"
    MEMBER_REJOINED = ("member.rejoined", "the member missed its assignment and rejoins the group")
    PARTITIONS_ASSIGNED = "partitions.assigned", "the partitions that the worker reads now"
    PARTITIONS_LOST = "partitions.lost", "the session timed out or was fenced"
    PARTITION_REGAINED = (
        "partition.regained",
        "a lost partition returned; its finished records do not run again",
    )
    PARTITION_POSTPONED = "partition.postponed", "a partition cannot start or continue yet"
    WHEEL_READ = "wheel.read", "the records in the delay service's wheels were read from Kafka"
    WHEEL_DISCARDED = (
        "wheel.discarded",
        "files of a wheel are damaged or of another version, and are read from Kafka again",
    )
    PARTITION_SUSPECTED = (
        "partition.suspected",
        "it ended uncleanly; its records start one at a time",
    )
    OFFSET_RESET = "offset.reset", "the position was outside the log; reading continues elsewhere"
    RECORDS_REJECTED = "records.rejected", "records beyond the log's end are not handled"
    RECORDS_PASSED_OVER = "records.passed_over", "records arrived after later ones: a bug"
    TOPICS_CHANGED = "topics.changed", "a pattern matches other topics than before"
    TOPIC_RECREATED = "topic.recreated", "the topic has another id and is read from its beginning"
    TOPIC_AWAITED = "topic.awaited", "no topic matches the worker's patterns yet"
    TOPIC_REFUSED = "topic.refused", "a topic cannot be read or prepared; all others are read"
    TOPIC_RESTORED = "topic.restored", "a topic works again"
    RETRY_TOPIC_WIDENED = "retry_topic.widened", "a retry topic has more partitions than its source"

    # Commits
    COMMIT_REFUSED = ("commit.refused", "a commit was refused; the next one includes its content")
    COMMIT_GIVEN_UP = "commit.given_up", "a commit failed and is not repeated"
    COMMIT_SKIPPED = "commit.skipped", "the final commit was omitted: the topics cannot be checked"
    COMMIT_METADATA_IGNORED = (
        "commit_metadata.ignored",
        "another client wrote the commit's metadata",
    )
    COMMIT_RANGES_IGNORED = (
        "commit_ranges.ignored",
        "the finished ranges do not fit; records run again",
    )
    TRANSACTION_ABORTED = (
        "transaction.aborted",
        "outputs and offsets of a transaction are not visible; its records run again",
    )

    # Records and calls
    CALL_FAILED = "call.failed", "a handler call failed, or a record left without a call"
    CALL_STALLED = "call.stalled", "a call does not return; the line has its stack"
    CALLS_STALLED = "calls.stalled", "how many more calls hang in the same place"
    CALL_RETURNED = "call.returned", "an abandoned call ended; its result is ignored"
    CALLS_INTERRUPTED = "calls.interrupted", "calls were ended because their partitions are revoked"
    CALL_OUTLIVED = "call.outlived", "a call outlived its partition; its result is ignored"
    CALL_OUTLIVED_SOURCE = (
        "call.outlived_source",
        "a copy's call outlived the partition of its source",
    )
    CALLS_OUTLIVED = ("calls.outlived", "many hanging calls outlived their partitions")
    CALLS_UNFINISHED = (
        "calls.unfinished",
        "calls had not returned at the end; their records run again",
    )
    RECORDS_LOST = "records.lost", "committed records had not ended: delivery is at_most_once"
    HEAD_BLOCKED = "head.blocked", "a start cell has made no progress for a while"
    RETRY_SHORTENED = "retry.shortened", "RetryLater requested a longer wait than the ladder has"
    TTL_IGNORED = "ttl.ignored", "a time to live cannot be read; such records do not expire"
    BREAKER_CHANGED = "breaker.changed", "the circuit breaker opened, half opened or closed"
    NEW_FAILURE_KNOWN = "new_failure.known", "which failures of other versions are known"
    NEW_FAILURE_FOUND = "new_failure.found", "a version fails in a new way; see the runbook"
    NEW_FAILURE_ACCEPTED = "new_failure.accepted", "a user resumed a worker despite a new failure"
    PUSH_PAUSE = "push.pause", "a service asks for a pause; no call starts before its end"
    DELAY_TARGET_REFUSES = "delay.target_refuses", "records wait for a topic that accepts none"
    DELAY_TARGET_TAKES = "delay.target_takes", "that topic accepts records again"
    DELAY_CANCELLATIONS_UNREAD = (
        "delay.cancellations_unread",
        "due records wait because the topic of cancellations cannot be read",
    )
    COPIES_HELD = "copies.held", "copies wait for the owner of their source's partition"
    COPY_REFUSED = "copy.refused", "a retry or dead-letter copy was refused and is retried"
    RESULT_REFUSED = "result.refused", "a result was refused and is resent"
    COPIES_UNACKED = "copies.unacked", "copies or results were still unacked at the end"
    PRODUCER_FAILED = "producer.failed", "the producer failed permanently; a new one takes over"
    PRODUCER_REPLACED = ("producer.replaced", "a producer lost the cluster and is replaced")
    PRODUCER_WARNED = "producer.warned", "the producer reports an error and tries to recover"
    PRODUCER_TOPIC_MISSING = (
        "producer.topic_missing",
        "a topic is missing; the producer's records wait for it",
    )
    PRODUCER_TOPIC_REFUSED = (
        "producer.topic_refused",
        "the brokers refuse a topic's records; a separate client sends them",
    )
    SEND_CALLBACK_FAILED = "send_callback.failed", "a callback of a sent record raised"

    # Pools
    CHILDREN_AWAITED = "children.awaited", "child processes have not started yet"
    CHILD_DIED = "child.died", "a child process died"
    CHILD_GARBLED = "child.garbled", "a child sent an invalid message and is killed"
    CHILD_REFUSED = "child.refused", "a child process could not be replaced"
    CHILD_KILLED = "child.killed", "a surplus child did not end and is killed"
    LOOP_BLOCKED = "loop.blocked", "a task or callback blocks the event loop"
    TASK_ESCAPED = "task.escaped", "SystemExit or the like escaped from a task"

    # Trace
    TRACE_TOPIC_MISSING = "trace.topic_missing", "the trace topic does not exist"
    TRACE_EVENTS_LOST = "trace.events_lost", "events are lost; logged once"
    TRACE_EVENTS_HELD = "trace.events_held", "the topic accepts no events; they stay in the spool"
    TRACE_RECOVERED = "trace.recovered", "events are written again"
    TRACE_FLUSH_FAILED = "trace.flush_failed", "the spool could not be flushed; events may be lost"
    TRACE_SHIPPING_FAILED = "trace.shipping_failed", "the spool cannot be shipped"
    TRACE_BATCH_REFUSED = "trace.batch_refused", "a batch of events was too large and is lost"
    TRACE_BATCHES_TORN = "trace.batches_torn", "torn batches of the spool are skipped"
    TRACE_FILES_IGNORED = "trace.files_ignored", "the spool has files of another version"
    TRACE_LOOKUP_FAILED = "trace.lookup_failed", "the page could not read the trace"

    # Audit
    AUDIT_TOPIC_MISSING = "audit.topic_missing", "the audit topic does not exist"
    AUDIT_DISABLED = "audit.disabled", "the disk was full at the start; nothing is counted"
    AUDIT_FAILED = "audit.failed", "the audit failed; records are still handled"
    AUDIT_COUNTS_HELD = (
        "audit.counts_held",
        "the topic accepts no counts; they stay in the local log",
    )
    AUDIT_RECOVERED = "audit.recovered", "counts reach the topic again"
    AUDIT_COUNTS_LOST = "audit.counts_lost", "counts cannot be written"
    AUDIT_LINE_SKIPPED = "audit.line_skipped", "a line of the local log cannot be read"
    AUDIT_SENDS_MISSED = "audit.sends_missed", "records were sent and not counted"
    AUDIT_SENDS_UNKNOWN = "audit.sends_unknown", "a producer died with unresolved sends"
    AUDIT_DIRECTORY_LEFT = "audit.directory_left", "a directory could not be removed"

    # Dead letters
    DLQ_LETTER_SHOWN = "dlq.letter_shown", "a user viewed a dead letter on the page"
    DLQ_JOB_STARTED = "dlq.job_started", "a user started a redrive or a purge on the page"
    DLQ_JOB_ENDED = "dlq.job_ended", "it ended: done, stopped or failed"
    DLQ_JOB_FAILED = "dlq.job_failed", "it failed: a bug"

    # Admin page, health, OpenTelemetry
    ADMIN_STARTED = "admin.started", "the address of the admin page"
    ADMIN_TOKEN_REFUSED = "admin.token_refused", "a client presented a wrong token"
    ADMIN_VALUE_SHOWN = "admin.value_shown", "a user viewed a record's value"
    ADMIN_PAUSE_REQUESTED = "admin.pause_requested", "a user requested a pause or resume"
    ADMIN_CONCURRENCY_REQUESTED = (
        "admin.concurrency_requested",
        "a user requested another concurrency of a worker",
    )
    ADMIN_BREAKER_DECIDED = "admin.breaker_decided", "a user decided about a breaker's held records"
    ADMIN_RECORD_ENDED = "admin.record_ended", "a user requested to skip or dead-letter a record"
    ADMIN_FRAME_FAILED = "admin.frame_failed", "a frame could not be created: a bug"
    ADMIN_REQUEST_FAILED = "admin.request_failed", "a request failed: a bug"
    DEV_RECORD_SENT = "dev.record_sent", "a user sent a record with the form of `dev`"
    SQS_STARTED = "sqs.started", "the address for SQS clients, and the queues"
    SQS_SIGNATURE_REFUSED = "sqs.signature_refused", "a client's signature is missing or wrong"
    SQS_ATTRIBUTES_IGNORED = (
        "sqs.attributes_ignored",
        "a client creates an existing queue with other attributes",
    )
    SQS_REQUEST_FAILED = "sqs.request_failed", "a request of a client of SQS failed: a bug"
    HEALTH_STARTED = "health.started", "the health address"
    HEALTH_SAMPLE_FAILED = "health.sample_failed", "a sample is missing; the next one may succeed"
    OTEL_SETUP_FAILED = "otel.setup_failed", "OpenTelemetry is not set up"
    OTEL_SDK_MISSING = "otel.sdk_missing", "exports are configured, but the SDK is not installed"
    OTEL_PROPAGATORS_IGNORED = "otel.propagators_ignored", "a propagator is not installed"
    OTEL_FILE_MISSING = "otel.file_missing", "a file that a variable names cannot be read"
    OTEL_FLUSH_OVERRUN = "otel.flush_overrun", "the collector did not accept everything in time"
    OTEL_END_FAILED = "otel.end_failed", "a provider could not be shut down"
    OTEL_SPAN_LOST = "otel.span_lost", "a span is lost"

    # Outbox
    ONCE_DATABASE_AWAY = "once.database_away", "the database of once is not available; calls wait"
    ONCE_DATABASE_BACK = "once.database_back", "it is available again, and calls start"
    ONCE_NOT_CLEANED = "once.not_cleaned", "old ids of once could not be deleted"
    ONCE_FENCE_WAITS = (
        "once.fence_waits",
        "a new owner of a partition waits for transactions of the former one; the line names them",
    )
    ONCE_TRANSACTION_ENDED = (
        "once.transaction_ended",
        "a call was abandoned and still held its transaction, which was ended",
    )
    ONCE_NOT_ENDED = (
        "once.not_ended",
        "the transactions of abandoned calls could not be ended; this is retried",
    )
    ONCE_WAITS = (
        "once.waits",
        "calls had no effect: another transaction has the id, or the database gave theirs up",
    )
    ONCE_HOLDS_LOCK = (
        "once.holds_lock",
        "a call has held SQLite's write lock for long, or others wait for it; the line names it",
    )
    ONCE_POOL_TOO_SMALL = "once.pool_too_small", "fewer connections than calls at once"
    OUTBOX_STARTED = "outbox.started", "the relay of `window-consumer outbox run` has started"
    OUTBOX_STOPPED = "outbox.stopped", "that relay has ended"
    OUTBOX_DATABASE_FAILED = (
        "outbox.database_failed",
        "the database does not answer, or accepts no changes; the relay retries",
    )
    OUTBOX_LANE_LOST = (
        "outbox.lane_lost",
        "another relay sends in a lane of this one, which leaves the lane to it",
    )
    OUTBOX_RELAY_FAILED = (
        "outbox.relay_failed",
        "an unexpected error has stopped the relay, which restarts; the process is not ready",
    )
    OUTBOX_NOT_LISTENING = (
        "outbox.not_listening",
        "with `outbox.notify`: commits of other processes do not wake the relay; it polls",
    )
    OUTBOX_NOT_CLEANED = (
        "outbox.not_cleaned",
        "rows older than `outbox.keep` could not be deleted; this is retried",
    )
    OUTBOX_ROWS_LOCKED = (
        "outbox.rows_locked",
        "another session has locked rows: these and later ones of their keys wait for it",
    )
    OUTBOX_INDEX_MISSING = (
        "outbox.index_missing",
        "the table lacks an index: the relay works, but slowly; the line has the SQL",
    )
    OUTBOX_SHARDS_DIFFER = (
        "outbox.shards_differ",
        "writers of the outbox have different numbers of shards: keys may lose their order",
    )
    OUTBOX_TOPIC_SILENT = (
        "outbox.topic_silent",
        "no broker answers for rows of a topic; they are sent again",
    )
    OUTBOX_ROW_REFUSED = "outbox.row_refused", "Kafka permanently refuses a row"

    # Schedules
    SCHEDULES_OWNED = "schedules.owned", "this process now sends the ticks of the schedules"
    SCHEDULES_FAILED = (
        "schedules.failed",
        "the schedules could not begin, or failed unexpectedly; they are retried",
    )
    SCHEDULE_NOT_SENT = "schedule.not_sent", "a tick of a schedule is not acked; it is sent again"
    SCHEDULE_TICKS_MISSED = (
        "schedule.ticks_missed",
        "several ticks were due at once, or one was late, and `missed` omits some",
    )

    # Spark
    BACKFILL_TASKS_LOST = "backfill.tasks_lost", "tasks ended without a result and are retried"
    BACKFILL_BREAKER_OPENED = "backfill.breaker_opened", "the breaker of a task opened"
    BACKFILL_BREAKER_CLOSED = "backfill.breaker_closed", "the breaker of a task closed again"
    BACKFILL_REPORTS_MISSING = "backfill.reports_missing", "tasks cannot report to the driver"
    CLASS_ARCHIVE_SKIPPED = "class_archive.skipped", "Spark starts without the class archive"


Warn = Callable[[LogEvent, str], None]
"""Logs a warning."""
