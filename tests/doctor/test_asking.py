"""Looking at processes: which of them, what is said of those that do not answer."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic

import pytest

from tests.golden_texts import Golden
from tests.kernel import FEATURES, cluster_at
from tests.telemetry.workers import fake_worker, reported
from window_consumer.admin.client import Access, AdminAddress
from window_consumer.admin.doctor.collection import Examination, Process, Seen
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.plan.diagnosis import CauseKind
from window_consumer.plan.loading import load_without_handlers
from window_consumer.runtime.replica import HttpAnswer


@pytest.fixture
def examination(tmp_path: Path) -> Examination:
    file = tmp_path / "workers.yaml"
    file.write_text(
        "kafka: {bootstrap.servers: a:1}\n"
        "workers: {charge: {group: shop, topics: [orders], ordering: unordered}}"
    )
    config = load_without_handlers(file, None, (), FEATURES).config
    return Examination(config, list(config.workers.values()), {}, [])


def at(url: str, *, has_windows: bool = True) -> Process:
    return Process(AdminAddress.parse(url), Access(), has_windows)


def test_workers_of_several_processes_are_distinguished(
    examination: Examination, golden: Golden
) -> None:
    copies = reported()
    copies["workers"] += [{**copies["workers"][0], "process": each} for each in "12"]
    del copies["workers"][0]
    with fake_worker(reported()) as one, fake_worker(copies) as two:
        examination.processes = [at(one.url), at(two.url)]
        well = examination.run(0.01).well
    for line in well:
        golden(line, one=one.url, two=two.url)


def test_a_single_process_needs_no_name(examination: Examination, golden: Golden) -> None:
    with fake_worker() as worker:
        examination.processes = [at(worker.url)]
        diagnosis = examination.run(0.01)
    golden(diagnosis.well[0])
    assert diagnosis.notes == ()


def test_a_copy_that_never_answers_beside_others_is_a_cause(
    examination: Examination, golden: Golden
) -> None:
    with fake_worker(reported(process="1") | {"missing": ["2"]}) as worker:
        examination.processes = [at(worker.url)]
        diagnosis = examination.run(0.01)
    (cause,) = diagnosis.causes
    assert (cause.kind, cause.where) == (CauseKind.NOT_IN_GROUP, "process 2")
    golden(cause.sentence)
    golden(diagnosis.well[0])


def test_a_copy_that_is_late_once_is_looked_at_as_if_it_had_not_been_asked(
    examination: Examination, golden: Golden
) -> None:
    here = reported(process="2")
    answers = iter([reported(process="1") | {"missing": ["2"]}, here, here, here])
    with fake_worker() as worker:
        worker.answer = lambda: HttpAnswer(200, json.dumps(next(answers)), "application/json")
        examination.processes = [at(worker.url)]
        diagnosis = examination.run(1.5)
    assert diagnosis.causes == ()
    golden(diagnosis.well[1])
    assert "; 0.0 records/s" in diagnosis.well[1]


def test_what_does_not_answer_is_noted_once_and_the_rest_is_looked_at(
    examination: Examination, golden: Golden
) -> None:
    with fake_worker() as worker:
        examination.processes = [at("http://127.0.0.1:1"), at(worker.url)]
        diagnosis = examination.run(0.01)
    (note,) = diagnosis.notes
    golden(note)
    assert len(diagnosis.well) == 1


def test_workers_that_the_configuration_does_not_have_are_named(
    examination: Examination, golden: Golden
) -> None:
    with fake_worker(reported(name="refund")) as worker:
        examination.processes = [at(worker.url)]
        diagnosis = examination.run(0.01)
    assert diagnosis.well == ()
    assert diagnosis.causes == ()
    (note,) = diagnosis.notes
    golden(note)


class Interrupting(Process):
    """Somebody presses Ctrl-C while it is looked at."""

    def observe(self, at_s: float, *, stacks: bool) -> Seen:  # noqa: ARG002 - as its base
        raise KeyboardInterrupt


def test_ctrl_c_ends_it_although_clusters_are_asked(
    examination: Examination, embedded: EmbeddedBroker
) -> None:
    examination.clusters = {"charge": cluster_at(embedded.bootstrap)}
    examination.processes = [Interrupting(AdminAddress("127.0.0.1", 1), Access(), True)]
    started = monotonic()
    with pytest.raises(KeyboardInterrupt):
        examination.run(600.0)
    assert monotonic() - started < 60


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (HttpAnswer(404, "no"), "/metrics answers with status 404"),
        (HttpAnswer(200, "<html>"), "these are not a worker's metrics"),
    ],
)
def test_metrics_that_are_none_are_noted(
    examination: Examination, answer: HttpAnswer, said: str
) -> None:
    with fake_worker() as worker:
        worker.answer = lambda: answer
        examination.processes = [at(worker.url, has_windows=False)]
        diagnosis = examination.run(0.01)
    assert diagnosis.notes == (f"{worker.url}: {said}",)


def test_who_hovers_is_reported_with_its_stack_from_the_last_look(examination: Examination) -> None:
    place = {"topic": "orders", "partition": 0, "offset": 0, "stack": 'File "shop.py", line 1'}
    fields = reported(stacks=[place])
    seen = fields["workers"][0]["snapshot"]
    seen["partitions"][0]["hovering_s"] = seen["calls"][0]["seconds"] = 60.0
    with fake_worker(fields) as worker:
        examination.processes = [at(worker.url)]
        (cause,) = examination.run(0.01).causes
    assert cause.stack == 'File "shop.py", line 1'
