"""``window-consumer pipeline run``: bad input, and a Kafka that goes away."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.commands import Commands
from tests.golden_texts import Golden
from window_consumer.dlq.spark.config import DeadLetterSection
from window_consumer.model.errors import BrokerUnavailableError, RunError, UsageError
from window_consumer.spark.commands import runner
from window_consumer.spark.commands.runner import JobRunningError, Runner
from window_consumer.spark.commands.schedule import BATCH_S
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.wire import load_pipeline
from window_consumer.trace.spark.config import TraceSection


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"directory": "x"}, "bootstrap.servers: is missing"),
        ({"kafka": {"bootstrap.servers": "b:1"}}, "directory"),
        ({"kafka": {"bootstrap.servers": "b:1"}, "directory": "x", "tarce": {}}, "trace"),
        (
            {"kafka": {"bootstrap.servers": "b:1"}, "directory": "x", "trace": {"keys": "hmac"}},
            "trace.key_secret: is missing",
        ),
        (
            {
                "kafka": {"bootstrap.servers": "b:1"},
                "directory": "x",
                "spark": {"properties": {"executor.memory": "1g"}},
            },
            "their names begin with spark.",
        ),
        (
            {"kafka": {"bootstrap.servers": "b:1"}, "directory": "x", "mask": [{"feilds": []}]},
            "mask[0].feilds",
        ),
        (
            {"kafka": {"bootstrap.servers": "b:1"}, "directory": "x", "mask": {"fields": ["a"]}},
            "mask: a mapping",
        ),
    ],
)
def test_a_configuration_that_is_wrong_is_reported_with_its_place(
    commands: Commands, tmp_path: Path, content: Any, expected: str
) -> None:
    (tmp_path / "pipeline.yaml").write_text(json.dumps(content))
    ended = commands.run("pipeline", "run", "trace")
    assert ended.code == 2
    assert expected in ended.err
    assert "pipeline.yaml" in ended.err


def test_a_job_that_is_none_and_options_that_exclude_each_other(commands: Commands) -> None:
    assert commands.run("pipeline", "run", "tarce").code == 2
    ended = commands.run("pipeline", "run", "trace", "--once", "--every", "1m")
    assert ended.code == 2


def kept_days(plan: PipelinePlan) -> tuple[int, int]:
    return plan.section(TraceSection).keep_days, plan.section(DeadLetterSection).keep_days


def test_how_long_tables_keep_what_they_have_is_configured_in_days(tmp_path: Path) -> None:
    content: dict[str, Any] = {"kafka": {"bootstrap.servers": "b:1"}, "directory": "x"}
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps(content))
    assert kept_days(load_pipeline(file)) == (30, 90)
    file.write_text(json.dumps({**content, "trace": {"keep": "7d"}, "dlq": {"keep": "1d"}}))
    assert kept_days(load_pipeline(file)) == (7, 1)


# ---- the runner


class Job(SimpleNamespace):
    """A job that reads one topic, or those with names of a pattern."""

    is_pattern = False

    def topic_of(self, _plan: PipelinePlan) -> str:
        return "events"


class Jobs:
    """Stands for the jobs on Spark: each start ends with what comes next."""

    JOBS = {  # noqa: RUF012 - as in the module
        **{name: Job(name=name) for name in ("trace", "audit")},
        "dlq": Job(name="dlq", is_pattern=True),
    }

    JobOptions = SimpleNamespace
    JobSource = SimpleNamespace

    def __init__(self, *ends: Exception | Callable[[], bool] | None):
        self.ends = list(ends)
        self.hows: list[Any] = []
        self.restarts: list[bool] = []
        self.clusters: list[str | None] = []
        self.ids: list[Mapping[str, str | None]] = []
        self.stopped: list[str] = []
        self.turns = 0
        self.stop = threading.Event()
        self.all_was_read: bool | None = None

    def start(self, _session: Any, _plan: PipelinePlan, job: Job, how: Any) -> Any:
        self.hows.append(how)
        self.restarts.append(how.restart)
        self.clusters.append(how.origin.cluster)
        self.ids.append(how.origin.topics)
        if how.before_batch is not None:
            spans = {0: (10, 30), 1: (5, 9), 2: (4, 8)}
            how.before_batch({("events", number): span for number, span in spans.items()})
        end = self.ends.pop(0)

        def wait(_timeout_s: int) -> bool:
            self.turns += 1
            assert self.turns < 100, "the others are not looked at"
            if isinstance(end, Exception):
                raise end
            ended = end is None or end()
            if ended and not self.ends:
                self.stop.set()  # the last one: else the next tick would come
            return ended

        return SimpleNamespace(
            sink=SimpleNamespace(job=job, records=7, rows=700, quarantined=2, path="a table"),
            wait=wait,
            read_to=lambda: {("events", 0): 17, ("events", 1): 3},
            stop=lambda: self.stopped.append(job.name),
            is_busy=lambda: True,
            batches=lambda: 3,
        )

    def is_absence(self, error: Exception) -> bool:
        return "TimeoutException" in str(error)

    def explained(self, error: Exception) -> str:
        return f"explained: {error}"


def goes_on() -> bool:
    """Stand for a job that has not ended."""
    return False


@pytest.fixture
def made() -> list[Jobs]:
    """What was run, the latest last."""
    return []


@pytest.fixture
def run(tmp_path: Path, made: list[Jobs]) -> Any:
    from pyspark import errors  # noqa: PLC0415 - imported here, as it takes long

    @contextmanager
    def session(_plan: PipelinePlan) -> Iterator[Any]:
        yield SimpleNamespace(sparkContext=SimpleNamespace(setLogLevel=lambda _level: None))

    def run(
        every_s: float | None,
        *ends: str | Exception | Callable[[], bool] | None,
        names: Sequence[str] = ("trace",),
        ids: Any = None,
        cluster_id: Any = lambda: None,
        beginnings: Any = None,
        logs: Any = None,
        passing: bool = False,
        stop: threading.Event | None = None,
        batch_s: float = BATCH_S,
        **more: Any,
    ) -> Jobs:
        raised = [errors.PySparkException(end) if isinstance(end, str) else end for end in ends]
        jobs = Jobs(*raised)
        made.append(jobs)
        plan = PipelinePlan(kafka={}, directory=str(tmp_path), fail_on_data_loss=not passing)
        asked = stop or (threading.Event() if every_s is None else jobs.stop)
        runner_of_jobs = Runner(
            plan,
            ids or (lambda _: "id"),
            lambda _: {"a.dlq": "another id"},
            beginnings,
            lambda: asked,
            cluster_id=cluster_id,
            logs=logs,
            again_s=0.01,
            batch_s=batch_s,
            open_session=session,
            load_jobs=lambda: jobs,
        )
        jobs.all_was_read = runner_of_jobs.run(names, every_s, **more)
        return jobs

    return run


def test_a_job_that_goes_on_waits_for_a_kafka_that_is_away(run: Any) -> None:
    asked: Iterator[Any] = iter(["id", BrokerUnavailableError("away"), "id", "id"])

    def topic_id(_: str) -> Any:
        answer = next(asked)
        if isinstance(answer, Exception):
            raise answer
        return answer

    jobs = run(60.0, "TimeoutException: no answer", None, ids=topic_id, restart=True)
    assert jobs.restarts == [True, False]
    assert list(asked) == ["id"]


def test_a_job_that_names_no_topic_waits_for_a_kafka_that_is_away(run: Any) -> None:
    answers: Iterator[Any] = iter([None, BrokerUnavailableError("away"), None, None])

    def cluster_id() -> None:
        if (answer := next(answers)) is not None:
            raise answer

    jobs = run(60.0, "TimeoutException: no answer", None, names=["dlq"], cluster_id=cluster_id)
    assert len(jobs.restarts) == 2
    assert list(answers) == [None]


def test_a_job_that_names_no_topic_does_not_begin_without_kafka(run: Any, made: list[Jobs]) -> None:
    def cluster_id() -> None:
        raise BrokerUnavailableError("away")

    with pytest.raises(BrokerUnavailableError):
        run(None, None, names=["dlq"], cluster_id=cluster_id)
    assert made[-1].restarts == []


def test_a_job_learns_the_ids_of_its_topics(run: Any) -> None:
    jobs = run(None, None, None, names=["trace", "dlq"])
    assert jobs.ids == [{"events": "id"}, {"a.dlq": "another id"}]


def test_a_job_learns_which_cluster_it_is_each_time_that_it_begins(run: Any) -> None:
    asked = iter(["one", "two"])
    jobs = run(60.0, "TimeoutException: no answer", None, cluster_id=lambda: next(asked))
    assert jobs.clusters == ["one", "two"]


def test_a_job_asks_where_its_records_come_from_before_each_batch(
    run: Any, made: list[Jobs]
) -> None:
    clusters = iter(["one", "two"])
    run(60.0, None, cluster_id=lambda: next(clusters))
    now = made[-1].hows[0].origin_now()
    assert (now.cluster, now.topics) == ("two", {"events": "id"})


def test_a_kafka_that_is_away_before_a_batch_ends_a_job_that_is_to_run_once_alone(
    run: Any, made: list[Jobs], capsys: pytest.CaptureFixture[str]
) -> None:
    away = BrokerUnavailableError("no broker")
    jobs = run(60.0, away, None)
    assert jobs.restarts == [False, False]
    assert "no broker; retrying in" in capsys.readouterr().err
    with pytest.raises(BrokerUnavailableError):
        run(None, away)
    assert made[-1].stopped == ["trace"]


def test_a_job_that_runs_once_ends_with_what_was_wrong(run: Any) -> None:
    with pytest.raises(RunError, match="TimeoutException"):
        run(None, "TimeoutException: no answer")
    with pytest.raises(RunError, match="DATA_LOSS"):
        run(60.0, "DATA_LOSS")


def test_what_one_job_ends_with_is_reported_at_once_and_the_others_are_stopped(
    run: Any, made: list[Jobs]
) -> None:
    with pytest.raises(RunError, match="DATA_LOSS"):
        run(60.0, goes_on, "DATA_LOSS", names=["trace", "audit"])
    assert made[-1].stopped == ["trace", "audit"]


def test_a_run_before_a_report_leaves_a_job_alone_that_runs(tmp_path: Path) -> None:
    jobs = Jobs(None)
    session: Any = None
    plan = PipelinePlan(kafka={}, directory=str(tmp_path))
    once = Runner(plan, lambda _: "id", lambda _: {}, aside=True, load_jobs=lambda: jobs)
    with runner._alone(str(tmp_path), "audit"), pytest.raises(JobRunningError):
        once.refresh(session, "audit")
    assert jobs.restarts == []
    once.refresh(session, "audit")
    assert jobs.restarts == [False]


def test_two_processes_do_not_run_one_job(run: Any, tmp_path: Path) -> None:
    with runner._alone(str(tmp_path), "trace"), pytest.raises(JobRunningError):
        run(None, None)
    run(None, None)


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UsageError, match=str(tmp_path / "file" / "locks")),
        runner._alone(str(tmp_path / "file"), "trace"),
    ):
        pass


def test_what_is_gone_is_reported_where_a_job_goes_on_behind_it(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def beginnings(topic: str) -> dict[int, int]:
        assert topic == "events"
        return {0: 17, 1: 5, 2: 100}

    run(None, None, beginnings=beginnings)
    assert capsys.readouterr().err == ""  # such a job would have ended
    run(None, None, beginnings=beginnings, passing=True)
    first, second = capsys.readouterr().err.splitlines()
    assert "trace: events partition 0 offsets 10 to 16" in first
    assert "trace: events partition 2 offsets 4 to 7" in second


def test_a_broker_that_cannot_be_asked_what_is_gone_ends_nothing(
    run: Any, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    def beginnings(_: str) -> Any:
        raise BrokerUnavailableError("away")

    run(None, None, beginnings=beginnings, passing=True)
    golden(capsys.readouterr().err)


def test_each_tick_is_reported_in_a_line_with_rows_lag_and_quarantine(
    run: Any, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    def logs(topics: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
        assert topics == ["events"]
        return {("events", 0): (5, 20), ("events", 1): (4, 8), ("events", 2): (100, 101)}

    run(0.01, None, None, logs=logs)
    golden(capsys.readouterr().out)


def test_a_lag_that_the_cluster_does_not_tell_ends_nothing(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def logs(_: Sequence[str]) -> Any:
        raise BrokerUnavailableError("away")

    run(60.0, None, logs=logs)
    assert "lag unknown (away), quarantine 2" in capsys.readouterr().out


def test_no_job_waits_for_the_long_run_of_another(run: Any, made: list[Jobs]) -> None:
    def long() -> bool:
        return len(made[-1].hows) == 5

    jobs = run(0.0, long, None, None, None, None, names=["trace", "audit"])
    assert jobs.all_was_read


@pytest.mark.parametrize("every_s", [60.0, None])
def test_a_batch_that_runs_may_end_when_the_end_is_asked_for(
    run: Any, every_s: float | None
) -> None:
    stop, waits = threading.Event(), Counter[bool]()

    def wait() -> bool:
        waits[stop.is_set()] += 1
        if waits[False] == 2:
            stop.set()
        return waits[True] == 3  # the batch ends

    jobs = run(every_s, wait, stop=stop)
    assert waits == {False: 2, True: 3}
    assert jobs.all_was_read is (every_s is not None)
    assert jobs.restarts == [False]


def test_a_batch_that_does_not_end_is_cut_off(run: Any) -> None:
    stop = threading.Event()

    def wait() -> bool:
        stop.set()
        return False

    assert run(60.0, wait, stop=stop, batch_s=0.0).all_was_read
