from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.config.conftest import Refusal
from window_consumer.config import LoadedConfig, TopicNames, load
from window_consumer.model.errors import ConfigError

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., Refusal]
WorkerText = Callable[..., str]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_an_ordered_worker_has_to_choose_and_is_refused_with_both_ways(
    refused: Refuse, worker_text: WorkerText, ordering: str
) -> None:
    message = refused(worker_text(f"ordering: {ordering}", "retry: {attempts: 2}"))
    assert message.wrong == (("workers.yaml:8", "workers.charge.retry.on_failure"),)
    assert ordering in message
    assert all(choice in message for choice in ("block:", "overtake:"))


@pytest.mark.parametrize("choice", ["block", "overtake"])
@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_an_ordered_worker_may_choose_either(
    loaded: Load, worker_text: WorkerText, ordering: str, choice: str
) -> None:
    result = loaded(worker_text(f"ordering: {ordering}", f"retry: {{on_failure: {choice}}}"))
    assert result.config.workers["charge"].retry.on_failure == choice


def test_without_ordering_block_is_refused_with_both_ways(
    refused: Refuse, worker_text: WorkerText
) -> None:
    message = refused(worker_text("retry: {on_failure: block}"))
    assert message.wrong == (("workers.yaml:7", "workers.charge.retry.on_failure"),)
    assert "on_failure: overtake" in message
    assert "ordering: key (or partition)" in message


def test_topics_and_patterns_exclude_each_other(refused: Refuse, worker_text: WorkerText) -> None:
    message = refused(worker_text("patterns: ['^a']"))
    assert message.wrong == (("workers.yaml:7", "workers.charge.patterns"),)
    assert "topics" in message


def test_a_class_cannot_be_fatal_and_retryable(refused: Refuse, worker_text: WorkerText) -> None:
    message = refused(worker_text("retry: {fatal: [a.B], retryable: [c.D, a.B]}"))
    assert [each.key for each in message.wrong] == ["workers.charge.retry.retryable[1]"]
    assert "fatal" in message


@pytest.mark.parametrize(
    ("first", "second", "place", "shared"),
    [
        ("topics: [x, t]", "topics: [y, t]", "topics[1]", "t"),
        ("topics: [t]", "patterns: ['^z', '^t']", "patterns[1]", "t"),
        ("patterns: ['^z', '^t']", "topics: [y, t]", "topics[1]", "t"),
        ("patterns: ['^t']", "patterns: ['^t']", "patterns[0]", "^t"),
    ],
)
def test_two_workers_of_one_group_cannot_read_one_topic(
    refused: Refuse, first: str, second: str, place: str, shared: str
) -> None:
    message = refused(f"workers:\n  a: {{group: g, {first}}}\n  b: {{group: g, {second}}}\n")
    assert message.wrong == (("workers.yaml:3", f"workers.b.{place}"),)
    assert {shared, "a", "(workers.yaml:2)"} <= set(re.split(r"[;:,.]? |;", message))


@pytest.mark.parametrize(
    "second",
    [
        "group: other, topics: [t]",
        "group: g, topics: [u]",
        "group: g, patterns: ['^u']",
        "group: g, topics: [t], enabled: false",
    ],
)
def test_other_groups_other_topics_and_disabled_workers_are_no_conflict(
    loaded: Load, second: str
) -> None:
    text = f"workers:\n  a: {{group: g, topics: [t]}}\n  b: {{{second}}}\n"
    assert list(loaded(text).config.workers) == ["a", "b"]


def test_all_workers_disabled_is_refused(refused: Refuse, worker_text: WorkerText) -> None:
    message = refused(worker_text("enabled: false"))
    assert message.wrong == (("workers.yaml:3", "workers"),)
    assert "enabled: true" in message


def test_a_disabled_worker_is_checked_too(refused: Refuse) -> None:
    message = refused(
        "workers:\n  a: {group: g, topics: [t]}\n  b: {group: g/h, topics: [u], enabled: false}\n"
    )
    assert message.wrong == (("workers.yaml:3", "workers.b.group"),)
    assert "'g/h'" in message


def test_a_dead_letter_topic_that_is_too_long_is_refused(refused: Refuse) -> None:
    text = f"workers:\n  a: {{group: {'g' * 100}, topics: [u, {'t' * 145}]}}\n"
    message = refused(text)
    assert message.wrong == (("workers.yaml:2", "workers.a.topics[1]"),)
    assert all(length in message for length in ("250", "249"))


def test_a_dead_letter_topic_of_the_longest_legal_name_is_taken(loaded: Load) -> None:
    config = loaded(f"workers: {{a: {{group: {'g' * 100}, topics: [{'t' * 144}]}}}}").config
    assert len(TopicNames(config.workers["a"], config.topics).dlq("t" * 144)) == 249


def test_two_workers_cannot_have_one_dead_letter_topic(refused: Refuse) -> None:
    message = refused(
        "workers:\n  a: {group: g, topics: [x.y]}\n  b: {group: g.x, topics: [z, y]}\n"
    )
    assert message.wrong == (("workers.yaml:3", "workers.b.topics[1]"),)
    assert {"g.x.y.dlq", "x.y", "a", "(workers.yaml:2)"} <= set(re.split(r"[;:,.]? |;", message))


def test_another_group_may_read_dead_letters(loaded: Load) -> None:
    text = "workers:\n  a: {group: g, topics: [t]}\n  b: {group: h, topics: [u, g.t.dlq]}\n"
    assert loaded(text).config.workers["b"].topics == ("u", "g.t.dlq")


def test_a_worker_cannot_read_its_own_dead_letters(refused: Refuse) -> None:
    message = refused("workers:\n  a: {group: g, topics: [t, g.t.dlq]}\n")
    assert message.wrong == (("workers.yaml:2", "workers.a.topics[1]"),)


def test_the_template_decides_about_the_names_of_dead_letter_topics(
    loaded: Load, refused: Refuse
) -> None:
    text = (
        "workers:\n  a: {group: g, topics: [t, g.t.dlq]}\ntopics: {dlq: '{group}.dead.{topic}'}\n"
    )
    config = loaded(text).config
    assert TopicNames(config.workers["a"], config.topics).dlq("t") == "g.dead.t"
    message = refused(text.replace("g.t.dlq", "g.dead.u"))
    assert message.wrong == (("workers.yaml:2", "workers.a.topics[1]"),)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("revoke_timeout: 150s", "workers.charge.revoke_timeout"),
        ("kafka: {max.poll.interval.ms: 20000}", "workers.charge.kafka.max.poll.interval.ms"),
        (
            "kafka: {consumer: {max.poll.interval.ms: '20000'}}",
            "workers.charge.kafka.consumer.max.poll.interval.ms",
        ),
    ],
)
def test_revoke_timeout_must_be_below_half_of_the_poll_interval(
    refused: Refuse, worker_text: WorkerText, line: str, key: str
) -> None:
    message = refused(worker_text(line))
    assert message.wrong == (("workers.yaml:7", key),)
    assert all(each in message for each in ("revoke_timeout", "max.poll.interval.ms"))


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("commit_interval: 5s", "workers.charge.commit_interval"),
        ("kafka: {transaction.timeout.ms: 200}", "workers.charge.kafka.transaction.timeout.ms"),
    ],
)
def test_transactions_must_end_before_the_brokers_abort_them(
    refused: Refuse, worker_text: WorkerText, line: str, key: str
) -> None:
    message = refused(worker_text("delivery: exactly_once", line))
    assert message.wrong == (("workers.yaml:8", key),)
    assert all(each in message for each in ("commit_interval", "transaction.timeout.ms"))


def test_transactions_may_be_long_if_the_brokers_wait_longer(
    loaded: Load, worker_text: WorkerText
) -> None:
    longer = "kafka: {transaction.timeout.ms: 60000}"
    lines = ("delivery: exactly_once", "commit_interval: 20s", longer)
    assert loaded(worker_text(*lines)).config.workers["charge"].commit_interval_s == 20


def test_the_poll_interval_of_the_top_counts_too(refused: Refuse, worker_text: WorkerText) -> None:
    message = refused(worker_text("revoke_timeout: 5s", kafka=["max.poll.interval.ms: 10000"]))
    assert message.wrong == (("workers.yaml:8", "workers.charge.revoke_timeout"),)
    assert all(each in message for each in ("5s", "10000", "(workers.yaml:3)"))


SCATTERING = [
    "{group.remote.assignor: uniform}",
    "{group.protocol: classic, partition.assignment.strategy: cooperative-sticky}",
    "{group.protocol: classic, partition.assignment.strategy: 'range,roundrobin'}",
]
LADDER = "retry: {on_failure: overtake, levels: [10s]}"


@pytest.mark.parametrize("kafka", SCATTERING)
@pytest.mark.parametrize("ordering", ["key", "partition"])
@pytest.mark.parametrize("retry", [LADDER, "retry: {on_failure: overtake}"])
def test_an_ordered_worker_keeps_equal_partitions_with_one_member(
    refused: Refuse, worker_text: WorkerText, retry: str, ordering: str, kafka: str
) -> None:
    """Without levels, too: dead letters that are put back are copies in a retry topic."""
    message = refused(worker_text(f"ordering: {ordering}", retry, f"kafka: {kafka}"))
    key, _, value = kafka.strip("{}").rpartition(", ")[2].partition(": ")
    value = value.strip("'")
    assert message.wrong == (("workers.yaml:9", f"workers.charge.kafka.{key}"),)
    assert all(each in message for each in (value, ordering, "ordering: unordered"))


@pytest.mark.parametrize("kafka", SCATTERING)
def test_without_ordering_partitions_may_be_scattered(
    loaded: Load, worker_text: WorkerText, kafka: str
) -> None:
    key, _, value = kafka.strip("{}").rpartition(", ")[2].partition(": ")
    text = worker_text("retry: {levels: [10s]}", f"kafka: {kafka}")
    assert loaded(text).config.workers["charge"].kafka.common[key] == value.strip("'")


def test_range_may_be_named(loaded: Load, worker_text: WorkerText) -> None:
    text = worker_text("ordering: key", LADDER, "kafka: {group.remote.assignor: range}")
    worker = loaded(text).config.workers["charge"]
    assert worker.kafka.common["group.remote.assignor"] == "range"


@pytest.mark.parametrize("value", ["lots", "-1", "true", "1.5"])
def test_a_poll_interval_that_is_no_number_is_left_to_the_client(
    loaded: Load, worker_text: WorkerText, value: str
) -> None:
    config = loaded(worker_text(kafka=[f"max.poll.interval.ms: {value}"])).config
    assert str(config.kafka.common["max.poll.interval.ms"]).lower() == value


def test_just_below_half_of_the_poll_interval_is_taken(
    loaded: Load, worker_text: WorkerText
) -> None:
    config = loaded(worker_text("revoke_timeout: 149999ms")).config
    assert config.workers["charge"].revoke_timeout == 149.999


def test_what_is_sure_is_reported_beside_other_problems_of_the_worker(
    refused: Refuse, worker_text: WorkerText
) -> None:
    message = refused(worker_text("ordering: key", "kafka: {a: 0123}"))
    keys = {each.key for each in message.wrong}
    assert keys == {"workers.charge.kafka.a", "workers.charge.retry.on_failure"}


def test_nothing_is_concluded_from_keys_that_are_broken(refused: Refuse) -> None:
    message = refused(
        "kafka: {max.poll.interval.ms: [900000]}\n"
        "topics: {dlq: 5}\n"
        "workers:\n"
        "  a: {group: g, topics: [t], revoke_timeout: 200s, memory: 1}\n"
        "  b: {group: g, topics: [t, g.t.dlq], revoke_timeout: 200s}\n"
        "  c: {group: h, topics: [t], enabled: false}\n"
    )
    keys = [each.key for each in message.wrong]
    assert keys == ["kafka.max.poll.interval.ms", "topics.dlq", "workers.a.memory"]


def test_without_handlers_what_decorators_may_give_is_not_missed(tmp_path: Path) -> None:
    file = tmp_path / "workers.yaml"
    file.write_text("workers: {charge: {group: g, ordering: key}}")
    with pytest.raises(ConfigError, match=r"topics(?s:.*)on_failure"):
        load(file)
    worker = load(file, without_handlers=True).config.workers["charge"]
    assert (worker.topics, worker.group) == ((), "g")
    file.write_text("workers: {charge: {ordering: kye}}")
    with pytest.raises(ConfigError, match=r"group(?s:.*)ordering|ordering(?s:.*)group"):
        load(file, without_handlers=True)


@pytest.mark.parametrize("concurrency", ["257", "{auto: 1..257}"])
def test_processes_are_no_more_than_a_machine_can_have(
    refused: Refuse, worker_text: WorkerText, concurrency: str
) -> None:
    message = refused(worker_text("pool: processes", f"concurrency: {concurrency}"))
    assert [each.key for each in message.wrong] == ["workers.charge.concurrency"]
    assert all(each in message for each in (concurrency, "processes", "256"))


def test_so_many_processes_are_taken(loaded: Load, worker_text: WorkerText) -> None:
    config = loaded(worker_text("pool: processes", "concurrency: 256")).config
    assert config.workers["charge"].pool == "processes"
