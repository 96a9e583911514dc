from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden_texts import Golden
from window_consumer.config import LoadedConfig, load

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., str]
WorkerText = Callable[..., str]


def test_variables_and_defaults_are_filled_in(loaded: Load, worker_text: WorkerText) -> None:
    result = loaded(
        worker_text(kafka=["a: ${A}", "b: ${B:-b:1}", "c: x-${A}-${B:-}-y", "d: ${E:-empty}"]),
        environ={"A": "one", "E": ""},
    )
    kafka = result.config.kafka.common
    assert (kafka["a"], kafka["b"], kafka["c"], kafka["d"]) == ("one", "b:1", "x-one--y", "empty")


def test_two_dollars_are_one_and_a_lone_one_is_itself(loaded: Load) -> None:
    text = "kafka: {a: $$5, b: '$${A}', c: '5$', d: '${A:-$$}'}\n"
    result = loaded(text + "workers: {w: {patterns: ['^orders$'], group: g}}\n")
    assert result.config.kafka.common == {"a": "$5", "b": "${A}", "c": "5$", "d": "$"}
    assert result.config.workers["w"].patterns == ("^orders$",)


def test_a_lone_reference_has_the_type_that_its_key_wants(
    loaded: Load, worker_text: WorkerText
) -> None:
    result = loaded(
        worker_text("concurrency: ${N}", "enabled: ${YES}", "memory: ${SIZE}", "handler: ${N}"),
        environ={"N": "8", "YES": "true", "SIZE": "64MiB"},
    )
    worker = result.config.workers["charge"]
    assert (worker.concurrency, worker.enabled, worker.memory) == (8, True, 2**26)
    assert worker.handler == "8"
    assert type(worker.handler) is str


def test_a_reference_with_text_around_it_stays_text(
    refused: Refuse, worker_text: WorkerText, golden: Golden
) -> None:
    golden(refused(worker_text("concurrency: 1${N}"), environ={"N": "8"}))


def test_a_lone_reference_of_a_kafka_property_loses_no_character(
    loaded: Load, worker_text: WorkerText
) -> None:
    values = {"A": "0123", "B": "5", "C": "true", "D": "yes", "E": "1.50", "F": "~", "G": "1_0"}
    result = loaded(
        worker_text(kafka=[f"p.{name}: ${{{name}}}" for name in values]), environ=values
    )
    kafka = dict(result.config.kafka.common)
    del kafka["bootstrap.servers"]
    assert kafka == {
        "p.A": "0123",
        "p.B": 5,
        "p.C": True,
        "p.D": "yes",
        "p.E": "1.50",
        "p.F": "~",
        "p.G": "1_0",
    }


@pytest.mark.parametrize("value", ["[orders, b]", "- orders", "{a: b}", "orders"])
def test_what_is_filled_in_never_becomes_a_list_or_a_mapping(
    refused: Refuse, value: str, golden: Golden
) -> None:
    message = refused("workers: {w: {topics: '${T}', group: g}}", environ={"T": value})
    golden(message)


def test_what_is_filled_in_is_not_looked_through_again(
    loaded: Load, worker_text: WorkerText
) -> None:
    result = loaded(worker_text(kafka=["a: ${A}"]), environ={"A": "${B}$$"})
    assert result.config.kafka.common["a"] == "${B}$$"


def test_keys_are_not_filled_in(loaded: Load, worker_text: WorkerText) -> None:
    result = loaded(worker_text(kafka=["${A}: 1"]), environ={"A": "x"})
    assert "${A}" in result.config.kafka.common


def test_a_missing_variable_is_named_with_its_line_and_nothing_follows_from_it(
    refused: Refuse, worker_text: WorkerText, golden: Golden
) -> None:
    message = refused(worker_text("concurrency: ${SLOTS}"))
    golden(message)


def test_all_missing_variables_of_a_value_are_named(
    refused: Refuse, worker_text: WorkerText, golden: Golden
) -> None:
    message = refused(worker_text(kafka=["a: ${ONE}-${TWO}"]))
    golden(message)


@pytest.mark.parametrize("value", ["${A", "${A-x}", "${}", "${1A}", "${file:}", "${A:?x}"])
def test_a_malformed_reference_is_refused_with_the_forms_that_exist(
    refused: Refuse, worker_text: WorkerText, value: str, golden: Golden
) -> None:
    message = refused(worker_text(kafka=[f"a: '{value}'"]), environ={"A": "a"})
    golden(message)


def test_a_reference_in_a_default_is_refused(
    refused: Refuse, worker_text: WorkerText, golden: Golden
) -> None:
    message = refused(worker_text(kafka=["a: ${A:-${B}}"]), environ={"B": "b"})
    golden(message)


def test_a_file_is_filled_in_without_its_last_newline(
    loaded: Load, worker_text: WorkerText, tmp_path: Path
) -> None:
    (tmp_path / "one").write_bytes(b"first\nsecond\n\n")
    (tmp_path / "two").write_bytes(b"windows\r\n")
    result = loaded(worker_text(kafka=[f"a: ${{file:{tmp_path}/one}}", "b: ${file:two}"]))
    kafka = result.config.kafka.common
    assert (kafka["a"], kafka["b"]) == ("first\nsecond\n", "windows")


def test_relative_files_begin_at_the_directory_of_the_configuration(
    loaded: Load, worker_text: WorkerText, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one").write_text("1", encoding="utf-8")
    path = tmp_path / "sub" / "w.yaml"
    path.write_text(worker_text("handler: ${file:one}"), encoding="utf-8")
    loaded(worker_text())  # the current directory is the one above
    assert load(path).config.workers["charge"].handler == "1"


def test_a_missing_file_is_named_with_its_line(
    refused: Refuse, worker_text: WorkerText, golden: Golden
) -> None:
    message = refused(worker_text("concurrency: ${file:/run/secrets/none}"))
    golden(message)


def test_a_file_that_is_no_text_is_refused(
    refused: Refuse, worker_text: WorkerText, tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    golden(refused(worker_text(kafka=["a: ${file:bytes}"])))


def test_a_variable_with_bytes_that_are_no_text_gives_a_message_that_can_be_printed(
    refused: Refuse, worker_text: WorkerText
) -> None:
    message = refused(worker_text("concurrency: ${N}"), environ={"N": "\udcff"})
    assert message.encode("utf-8")


def test_what_an_override_replaces_need_not_be_set(loaded: Load) -> None:
    result = loaded(
        "kafka: {bootstrap.servers: '${KAFKA}'}\nworkers: {w: {topics: [t], group: g}}\n",
        "kafka.bootstrap.servers=h:1",
    )
    assert result.config.kafka.common == {"bootstrap.servers": "h:1"}
