from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden_texts import Golden
from window_consumer.config import LoadedConfig, load
from window_consumer.model.errors import ConfigError

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., str]
WorkerText = Callable[..., str]


def load_bytes(tmp_path: Path, content: bytes) -> str:
    (tmp_path / "w.yaml").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "w.yaml")
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_a_missing_file_is_named(tmp_path: Path, golden: Golden) -> None:
    with golden.raises(ConfigError):
        load(tmp_path / "nowhere.yaml")


def test_a_directory_instead_of_a_file_is_refused(tmp_path: Path, golden: Golden) -> None:
    with golden.raises(ConfigError):
        load(tmp_path)


def test_a_file_that_is_not_utf8_is_refused_with_the_line(tmp_path: Path, golden: Golden) -> None:
    message = load_bytes(tmp_path, b"workers:\n  caf\xe9: 1\n")
    golden(message)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# only a comment\n", b"---\n"])
def test_an_empty_file_is_refused(tmp_path: Path, content: bytes, golden: Golden) -> None:
    golden(load_bytes(tmp_path, content))


@pytest.mark.parametrize("content", [b"- a\n", b"text\n", b"5\n"])
def test_a_file_that_is_no_mapping_is_refused(
    tmp_path: Path, content: bytes, golden: Golden
) -> None:
    golden(load_bytes(tmp_path, content))


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("workers:\n  a: [b\n", "workers.yaml:3:1: ", "expected ',' or ']'"),
        ("workers:\n\ta: b\n", "workers.yaml:2:1: ", "indent with spaces, not with tabs"),
        ("a: b: c\n", "workers.yaml:1:5: ", "mapping values are not allowed here"),
        ("a: 1\n---\nb: 2\n", "workers.yaml:2:1: ", "found another document"),
        ("a: 'b\n", "workers.yaml:2:1: ", "unexpected end of stream"),
        ("a: {b: ${N}}\n", "workers.yaml:1:9: ", "inside { } and [ ] write quotes around ${"),
        (
            "a: {group}.b\n",
            "workers.yaml:1:11: ",
            "write quotes around a value that begins with a br",
        ),
        ("a: @b\n", "workers.yaml:1:4: ", "quote the value if it is text"),
        ("a: 1\nb: \x07\n", "workers.yaml:2: ", "the character U+0007"),
    ],
)
def test_what_is_no_yaml_is_refused_with_line_and_column(
    refused: Refuse, text: str, place: str, what: str
) -> None:
    message = refused(text)
    assert message.startswith(f"{place}not valid YAML: ")
    assert what in message
    assert "\n" not in message


@pytest.mark.parametrize("value", ["*hunter2", "!hunter2!x y", "%hunter2", "&hunter2 *hunter2"])
def test_a_syntax_error_does_not_show_an_unquoted_password(refused: Refuse, value: str) -> None:
    message = refused(f"kafka:\n  sasl.password: {value}\n")
    assert message.startswith("workers.yaml:2")
    assert "hunter2" not in message


def test_duplicate_keys_are_refused_with_both_lines(
    refused: Refuse, worker_text: WorkerText, golden: Golden
) -> None:
    message = refused(worker_text("concurrency: 4", "memory: 64MiB", "concurrency: 5"))
    golden(message)


def test_a_duplicate_key_is_found_however_it_is_quoted(refused: Refuse, golden: Golden) -> None:
    message = refused("workers:\n  a: {topics: [t], group: g}\n  'a': {topics: [t], group: g}\n")
    golden(message)


def test_anchors_and_merges_work_and_keep_the_line_of_what_they_bring(loaded: Load) -> None:
    result = loaded(
        "workers:\n"
        "  a: &a\n"
        "    topics: [t]\n"
        "    group: g\n"
        "    retry: &retry\n"
        "      attempts: 5\n"
        "      backoff: 1s..2s\n"
        "  b:\n"
        "    <<: *a\n"
        "    topics: [u]\n"
        "    retry:\n"
        "      <<: [*retry]\n"
        "      attempts: 7\n"
    )
    b = result.config.workers["b"]
    assert (b.group, b.topics, b.retry.attempts, b.retry.backoff) == ("g", ("u",), 7, (1.0, 2.0))
    assert result.where(("workers", "b", "group")) == "workers.yaml:4"
    assert result.where(("workers", "b", "topics")) == "workers.yaml:10"
    assert result.where(("workers", "b", "retry", "attempts")) == "workers.yaml:13"
    assert result.where(("workers", "b", "retry", "backoff")) == "workers.yaml:7"


def test_of_several_merged_mappings_the_first_wins(loaded: Load) -> None:
    result = loaded(
        "workers:\n"
        "  a: {topics: [t], group: g, window: &x {cells: 10}}\n"
        "  b: {topics: [u], group: g, window: &y {cells: 20, cell_records: 30}}\n"
        "  c: {topics: [v], group: g, window: {<<: [*x, *y]}}\n"
    )
    window = result.config.workers["c"].window
    assert (window.cells, window.cell_records) == (10, 30)


def test_of_two_merges_into_one_mapping_the_first_wins(loaded: Load) -> None:
    result = loaded(
        "workers:\n"
        "  a: {topics: [t], group: g, window: &x {cells: 10}}\n"
        "  b: {topics: [u], group: g, window: &y {cells: 20}}\n"
        "  c: {topics: [v], group: g, window: {<<: *x, <<: *y}}\n"
    )
    assert result.config.workers["c"].window.cells == 10


def test_a_problem_below_an_anchor_is_reported_once(refused: Refuse) -> None:
    message = refused(
        "workers:\n"
        "  a: {topics: [t], group: g, window: &x {cells: 5, cells: 6}}\n"
        "  b: {topics: [u], group: g, window: *x}\n"
    )
    assert len(message.splitlines()) == 1


def test_merging_what_is_no_mapping_is_refused(
    refused: Refuse, worker_text: WorkerText, golden: Golden
) -> None:
    message = refused(worker_text("retry:", "  <<: [5]"))
    golden(message)


@pytest.mark.parametrize("text", ["a: &a [*a]\n", "a: &a\n  b: *a\n", "a: &a\n  <<: *a\n"])
def test_an_alias_inside_of_itself_is_refused(refused: Refuse, text: str, golden: Golden) -> None:
    golden(refused(text))


def test_aliases_cannot_expand_without_bound(refused: Refuse, golden: Golden) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    golden(refused("\n".join(lines)))


def test_deep_nesting_is_refused(refused: Refuse, golden: Golden) -> None:
    golden(refused("a: " + "[" * 5000))


@pytest.mark.parametrize("value", ["!!python/object:os.system {}", "!mine 5", "!!binary aGk="])
def test_tags_of_other_types_are_refused(
    refused: Refuse, worker_text: WorkerText, value: str
) -> None:
    message = refused(worker_text(f"concurrency: {value}"))
    assert message.startswith("workers.yaml:7: workers.charge.concurrency: has an")


@pytest.mark.parametrize("value", ["!!int x", "!!bool x", "!!int ''", "1" * 5000])
def test_what_yaml_takes_for_a_number_and_is_none_is_refused(
    refused: Refuse, worker_text: WorkerText, value: str
) -> None:
    message = refused(worker_text(f"concurrency: {value}"))
    assert message.startswith("workers.yaml:7: workers.charge.concurrency: is not a ")


def test_a_key_that_is_no_text_is_refused(
    refused: Refuse, worker_text: WorkerText, golden: Golden
) -> None:
    golden(refused(worker_text("? [a]\n    : b")))


def test_dates_and_keys_that_yaml_takes_for_other_types_are_text(loaded: Load) -> None:
    worker = loaded("workers:\n  on: {topics: [2024-01-31], group: 2024-13-45}\n").config.workers[
        "on"
    ]
    assert (worker.name, worker.topics, worker.group) == ("on", ("2024-01-31",), "2024-13-45")


def test_where_names_lines_parents_and_keys_below_kafka(
    loaded: Load, worker_text: WorkerText
) -> None:
    result = loaded(worker_text("kafka:", "  fetch.min.bytes: 5", "  consumer:", "    a.b: 1"))
    assert result.where(("kafka", "bootstrap.servers")) == "workers.yaml:2"
    assert result.where(("workers", "charge", "kafka", "fetch.min.bytes")) == "workers.yaml:8"
    assert result.where(("workers", "charge", "kafka", "consumer", "a.b")) == "workers.yaml:10"
    assert result.where(("workers", "charge", "kafka", "consumer", "x")) == "workers.yaml:9"
    assert result.where(("workers", "charge", "topics", 0)) == "workers.yaml:5"
    assert result.where(("workers", "charge", "retry", "attempts")) == "workers.yaml:4"
    assert result.where(("topics", "create")) == "workers.yaml:1"


def test_problems_are_reported_all_at_once_in_the_order_of_the_file(refused: Refuse) -> None:
    message = refused(
        "stall: 5\n"
        "workers:\n"
        "  a:\n"
        "    group: g/h\n"
        "    topics: [t]\n"
        "    memory: 5\n"
        "topics: {create: 1}\n",
        "workers.a.concurrency=many",
    )
    places = [line.partition(": ")[0] for line in message.splitlines()]
    assert places == [
        "workers.yaml:1",
        "workers.yaml:4",
        "workers.yaml:6",
        "workers.yaml:7",
        "--set workers.a.concurrency",
    ]
