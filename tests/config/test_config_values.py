from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden_texts import Golden
from window_consumer.config import LoadedConfig, TopicNames, example, load
from window_consumer.model.errors import ConfigError, UsageError

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., str]
WorkerText = Callable[..., str]


def test_the_defaults_are_those_of_the_contract(loaded: Load) -> None:
    config = loaded("workers: {w: {topics: [t], group: g}}").config
    worker = config.workers["w"]
    assert (worker.name, worker.handler, worker.enabled) == ("w", "w", True)
    assert (worker.topics, worker.patterns, worker.group) == (("t",), (), "g")
    assert (worker.ordering, worker.concurrency, worker.memory) == ("unordered", 16, 2**28)
    assert (worker.window.cells, worker.window.cell_records) == (32, 500)
    assert worker.commit_interval_s == 0.5
    assert (worker.revoke_timeout, worker.stop_timeout) == (10.0, 20.0)
    assert (worker.retry.attempts, worker.retry.backoff) == (3, (0.2, 5.0))
    assert (worker.retry.fatal, worker.retry.retryable) == ((), ())
    assert (worker.retry.when_spent, worker.retry.on_oversize) == ("dead_letter", "hold")
    assert worker.retry.on_failure == "overtake"
    assert (worker.on_no_offset, worker.on_out_of_range) == ("earliest", "fail")
    assert (config.topics.create, config.topics.dlq) == (True, "{group}.{topic}.dlq")
    assert config.topics.dlq_retention == 14 * 86400
    assert TopicNames(worker, config.topics).dlq("t") == "g.t.dlq"


def test_a_config_error_is_a_usage_error_of_exit_code_2(refused: Refuse) -> None:
    refused("workers:\n")
    assert issubclass(ConfigError, UsageError)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (
            'concurrency: "8"',
            "'8' is not a whole number from 1 to 10000, auto, or a range such as {auto: 1..200}; ",
        ),
        ("concurrency: 8.0", "8.0 is not a whole number from 1 to 10000"),
        ("concurrency: true", "true is not a whole number from 1 to 10000"),
        ("concurrency: 0", "0 is not a whole number from 1 to 10000"),
        ("concurrency: 10001", "10001 is not a whole number from 1 to 10000"),
        ("concurrency:", "an empty value is not a whole number from 1 to 10000"),
        ("concurrency: [8]", "a list is not a whole number from 1 to 10000"),
        ("enabled: 1", "1 is not true or false"),
        ('enabled: "true"', "'true' is not true or false; write it without quotes"),
        ("handler: 5", "5 is not the name of a handler; write it in quotes"),
        ("handler: ' '", "' ' is not the name of a handler: it is empty"),
        ("memory: 7MiB", "'7MiB' is not a size such as 64MiB or 1GiB, from 8MiB to 1TiB"),
        (
            "commit_interval: 5",
            "5 is not a duration such as 500ms, 10s or 1m, from 10ms to 1m: it has no unit; write ",
        ),
        (
            "commit_interval: 9ms",
            "'9ms' is not a duration such as 500ms, 10s or 1m, from 10ms to 1m",
        ),
        (
            "commit_interval: 61s",
            "'61s' is not a duration such as 500ms, 10s or 1m, from 10ms to 1m",
        ),
        (
            "commit_interval: true",
            "true is not a duration such as 500ms, 10s or 1m, from 10ms to 1m",
        ),
        ("ordering: keys", "'keys' is not one of unordered, key or partition; did you mean key?"),
        ("ordering: 5", "5 is not one of unordered, key or partition"),
        ("on_no_offset: Latest", "'Latest' is not one of earliest, latest or fail; did you mean "),
        ("window: 5", "expected a mapping with the keys cells, cell_records"),
        ("kafka: a=b", "expected a mapping with the properties of Kafka clients"),
    ],
)
def test_a_wrong_value_is_reported_with_place_key_expectation_and_what_was_meant(
    refused: Refuse, worker_text: WorkerText, line: str, wrong: str
) -> None:
    key = line.partition(":")[0]
    message = refused(worker_text(line))
    assert message.startswith(f"workers.yaml:7: workers.charge.{key}: {wrong}")
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "key", "wrong"),
    [
        ("failures: 0%", "failures", "'0%' is not a percentage such as 50%, from 1% to 100%"),
        ("failures: 101%", "failures", "'101%' is not a percentage such as 50%, from 1% to 100%"),
        ("failures: 0.5", "failures", "0.5 is not a percentage such as 50%, from 1% to 100%: it "),
        ("min_calls: 0", "min_calls", "0 is not a whole number from 1 to 1000"),
        ("window: 0", "window", "0 is not a duration such as 500ms, 10s or 1m, from 1s to 1h"),
        ("cool_down: 2h", "cool_down", "'2h' is not a duration such as 500ms, 10s or 1m, from 1"),
        ("enabled: 0", "enabled", "0 is not true or false"),
    ],
)
def test_a_wrong_value_of_the_breaker_is_reported(
    refused: Refuse, worker_text: WorkerText, line: str, key: str, wrong: str
) -> None:
    message = refused(worker_text("breaker:", f"  {line}"))
    assert message.startswith(f"workers.yaml:8: workers.charge.breaker.{key}: {wrong}")


@pytest.mark.parametrize(
    ("line", "key", "wrong"),
    [
        ("attempts: 0", "attempts", "0 is not a whole number from 1 to 1000"),
        ("attempts: 1001", "attempts", "1001 is not a whole number from 1 to 1000"),
        (
            "backoff: 5s..200ms",
            "backoff",
            "'5s..200ms' is not a range of durations such as 200ms..5s: it has its ends in",
        ),
        ("backoff: 1s", "backoff", "'1s' is not a range of durations such as 200ms..5s: it does"),
        ("backoff: 5", "backoff", "5 is not a range of durations"),
        ("fatal: [a b]", "fatal[0]", "'a b' is not the dotted name of an exception class"),
        (
            "fatal: ValueError",
            "fatal",
            "'ValueError' is not a list of dotted names of exception cl",
        ),
        ("retryable: [a.B, a.B]", "retryable[1]", "'a.B' appears twice in the list"),
        ("when_spent: dlq", "when_spent", "'dlq' is not one of dead_letter, stop or drop"),
        ("on_oversize: cut", "on_oversize", "'cut' is not one of hold, stop or reference"),
        (
            "on_failure: blok",
            "on_failure",
            "'blok' is not one of overtake, block or park; did you mean ",
        ),
    ],
)
def test_a_wrong_value_in_a_section_is_reported(
    refused: Refuse, worker_text: WorkerText, line: str, key: str, wrong: str
) -> None:
    message = refused(worker_text("retry:", f"  {line}"))
    assert message.startswith(f"workers.yaml:8: workers.charge.retry.{key}: {wrong}")
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "key", "wrong"),
    [
        ("topics: orders", "topics", "'orders' is not a list of topic names; write [orders]"),
        ("topics: []", "topics", "the list is empty, expected a list of topic names"),
        ("topics: [a/b]", "topics[0]", "'a/b' is not a topic name of letters, digits, dots, dashe"),
        ("topics: [a, ..]", "topics[1]", "'..' is not a topic name"),
        ("topics: ['']", "topics[0]", "'' is not a topic name"),
        ("topics: [no]", "topics[0]", "no is not a topic name of letters, digits, dots, dashes "),
        ("topics: [^a]", "topics[0]", "'^a' is not a topic name"),
        ("topics: [a, a]", "topics[1]", "'a' appears twice in the list"),
        ("patterns: ^a", "patterns", "'^a' is not a list of regular expressions; write ['^a']"),
        ("patterns: [a]", "patterns[0]", "'a' is not a regular expression that begins with ^"),
        ("patterns: [^a|b]", "patterns[0]", "'^a|b' is not a regular expression that begins with"),
        ("patterns: [^(]", "patterns[0]", "'^(' is not a regular expression that begins with ^"),
        ("patterns: ['^[[a]']", "patterns[0]", "'^[[a]' is not a regular expression that begins"),
    ],
)
def test_a_wrong_subscription_is_reported(refused: Refuse, line: str, key: str, wrong: str) -> None:
    message = refused(f"workers:\n  w:\n    group: g\n    {line}\n")
    assert message.startswith(f"workers.yaml:4: workers.w.{key}: {wrong}")
    assert len(message.splitlines()) == 1


def test_a_pattern_in_topics_is_refused_with_where_patterns_go(
    refused: Refuse, golden: Golden
) -> None:
    message = refused("workers: {w: {topics: ['^orders'], group: g}}")
    golden(message)


@pytest.mark.filterwarnings("ignore")
def test_a_pattern_that_python_only_warns_of_is_refused(refused: Refuse, golden: Golden) -> None:
    message = refused("workers: {w: {patterns: ['^[[b]'], group: g}}")
    golden(message)


def test_an_unanchored_pattern_is_refused_with_why(refused: Refuse, golden: Golden) -> None:
    message = refused("workers: {w: {patterns: ['orders'], group: g}}")
    golden(message)


@pytest.mark.parametrize(
    "pattern", ["^orders[.]", "^(a|b)", "^a[|]b", r"^a\|b", "^a|^b", "^a(?:|b)$"]
)
def test_patterns_of_which_every_branch_is_anchored_are_taken(loaded: Load, pattern: str) -> None:
    worker = loaded(f"workers: {{w: {{patterns: ['{pattern}'], group: g}}}}").config.workers["w"]
    assert worker.patterns == (pattern,)


@pytest.mark.parametrize("group", ["a/b", ".", "..", "a b", "x" * 250, "é"])
def test_an_illegal_group_is_refused(refused: Refuse, group: str, golden: Golden) -> None:
    message = refused(f"workers:\n  w: {{topics: [t], group: '{group}'}}\n")
    assert message.startswith("workers.yaml:2: workers.w.group: ")
    golden(message)


def test_a_missing_group_and_subscription_are_reported(refused: Refuse, golden: Golden) -> None:
    assert "workers.yaml:2: workers.w.group: is missing: a group name" in refused(
        "workers:\n  w: {topics: [t]}\n"
    )
    golden(refused("workers:\n  w: {group: g}\n"))


@pytest.mark.parametrize("name", ["a b", "a.b", "''", "ä", '"a\\nb"'])
def test_an_illegal_worker_name_is_refused(refused: Refuse, name: str, golden: Golden) -> None:
    message = refused(f"workers:\n  {name}: {{topics: [t], group: g}}\n")
    assert message.startswith("workers.yaml:2: workers.")
    golden(message)
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    "dlq",
    ["{topic}.dlq", "{group}.dlq", "{group}{topic}", "{group}.{topic}.{x}", "{group}.{topic}/"],
)
def test_a_template_that_does_not_fit_is_refused(
    refused: Refuse, worker_text: WorkerText, dlq: str, golden: Golden
) -> None:
    message = refused(f"{worker_text()}\ntopics: {{dlq: '{dlq}'}}\n")
    golden(message)


def test_a_long_value_is_shown_in_part(refused: Refuse, worker_text: WorkerText) -> None:
    message = refused(worker_text(f"concurrency: {'x' * 5000}"))
    assert len(message) < 250


@pytest.mark.parametrize("text", ["workers:\n", "workers: {}\n", "kafka: {}\n"])
def test_a_configuration_without_workers_is_refused(
    refused: Refuse, text: str, golden: Golden
) -> None:
    golden(refused(text))


@pytest.mark.parametrize("text", ["workers: [a]\n", "workers: a\n"])
def test_workers_have_to_be_a_mapping(refused: Refuse, text: str, golden: Golden) -> None:
    golden(refused(text))


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_whatever_is_in_the_file_it_loads_or_is_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, rng: random.Random
) -> None:
    text = [*example()]
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(text))
        piece = rng.choice(
            [
                "",
                "\n",
                ":",
                " ",
                "  ",
                "{",
                "}",
                "[",
                "]",
                "'",
                '"',
                "$",
                "${",
                "*a",
                "&a ",
                "- ",
                "5",
                "~",
                "!!x ",
            ]
        )
        text[start : start + rng.randint(0, 3)] = [piece]
    path = tmp_path_factory.getbasetemp() / "mutant.yaml"
    path.write_text("".join(text), encoding="utf-8")
    override = rng.choice(
        ["workers.charge.retry={attempts: 1}", "kafka.a.b=c", "topics=", "workers=["]
    )
    try:
        load(path, {"charge": {"retry": {"attempts": 5}}}, [override], {})
    except ConfigError as error:
        lines = str(error).split("\n")
    else:
        lines = [f"{path} is fine"]
    assert all(line.startswith((str(path), "--set", "@app", "  ")) for line in lines)


def test_the_current_directory_does_not_matter_for_where(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("workers:\n  w: {topics: [t], group: g}\n", encoding="utf-8")
    assert load(path).where(("workers", "w", "group")) == f"{path}:2"
