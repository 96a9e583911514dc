"""The sections `sqs` and `pull`: what they make of a worker, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sqs.running_queues import configured
from window_consumer import App, ConfigError, UsageError
from window_consumer.plan.app_plan import AppPlan
from window_consumer.sqs.bounds import LongestLease, QueueBounds
from window_consumer.sqs.config import PullConfig, SqsConfig, send_topic

HIDDEN = "tr0ub4dor-and-3"


def planned(tmp_path: Path, sections: dict[str, Any]) -> AppPlan:
    file = tmp_path / "workers.yaml"
    file.write_text(yaml.safe_dump({"kafka": {"bootstrap.servers": "b:1"}, **sections}))
    return App("queues").plan(file)


def test_a_worker_with_pull_needs_no_handler_and_its_slots_are_leases(tmp_path: Path) -> None:
    (worker,) = planned(tmp_path, configured(pull={"max_in_flight": 7})).workers
    assert worker.pool.leases
    assert (worker.engine.slots, worker.handler_names) == (7, "orders")
    assert worker.engine.stall.leases
    assert send_topic(worker.config) == "orders"


def test_pull_alone_makes_a_queue_with_the_defaults_of_sqs(tmp_path: Path) -> None:
    worker = {"topics": ["orders"], "group": "shop"}
    pulls: list[dict[str, Any] | None] = [{}, None]
    for pull in pulls:
        sections = {
            "sqs": {"listen": "127.0.0.1:1"},
            "workers": {"orders": {**worker, "pull": pull}},
        }
        (planned_worker,) = planned(tmp_path, sections).workers
        section = planned_worker.config.section(PullConfig)
        assert (section.visibility_timeout, section.max_in_flight) == (30.0, 1000)
        assert planned_worker.pool.leases
    with pytest.raises(ConfigError):
        planned(tmp_path, {"workers": {"orders": worker}})


def test_a_fifo_queue_keeps_the_order_of_a_key_unless_somebody_chooses(tmp_path: Path) -> None:
    (worker,) = planned(tmp_path, configured(ordering="key")).workers
    assert worker.config.retry.on_failure == "block"


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"concurrency": 4}, ["workers.orders.concurrency"]),
        ({"concurrency": "auto"}, ["workers.orders.concurrency"]),
        ({"stall": {"after": "10s"}}, ["workers.orders.stall"]),
        ({"batch": {"max_records": 10}}, ["workers.orders.batch"]),
        ({"handler": "charge"}, ["workers.orders.handler"]),
        ({"pool": "threads"}, ["workers.orders.pool"]),
        ({"delivery": "exactly_once"}, ["workers.orders.delivery"]),
        ({"delivery": "at_most_once"}, ["workers.orders.delivery"]),
        ({"pull": {"send_to": "refunds"}}, ["workers.orders.pull.send_to"]),
        ({"pull": {"visibility_timeout": "13h"}}, ["workers.orders.pull.visibility_timeout"]),
        ({"pull": {"max_in_flight": 0}}, ["workers.orders.pull.max_in_flight"]),
        ({"pull": {"visibility_timout": "30s"}}, ["workers.orders.pull.visibility_timout"]),
    ],
)
def test_what_means_nothing_for_a_queue_is_refused(
    keys: dict[str, Any], wrong: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, configured(**keys))
    assert [each.key for each in caught.value.wrong] == wrong


@pytest.mark.parametrize(
    ("sqs", "wrong"),
    [
        ({}, ["sqs.listen"]),
        ({"listen": "0.0.0.0:9324"}, ["sqs.listen"]),
        ({"listen": "127.0.0.1"}, ["sqs.listen"]),
        ({"listen": "127.0.0.1:1", "tls": {"key": "a"}}, ["sqs.tls.certificate"]),
        ({"listen": "127.0.0.1:1", "credentials": {}}, ["sqs.credentials"]),
        ({"listen": "127.0.0.1:1", "credentials": {"a b": HIDDEN}}, ["sqs.credentials.a b"]),
        ({"listen": "127.0.0.1:1", "credentials": {"A": f"{HIDDEN} "}}, ["sqs.credentials.A"]),
        ({"listen": "127.0.0.1:1", "advertise": " "}, ["sqs.advertise"]),
    ],
)
def test_an_endpoint_that_cannot_work_is_refused_without_telling_secrets(
    sqs: dict[str, Any], wrong: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, {**configured(), "sqs": sqs})
    assert [each.key for each in caught.value.wrong] == wrong
    assert HIDDEN not in str(caught.value)


def test_secrets_of_clients_are_masked_everywhere(tmp_path: Path) -> None:
    sqs = {"listen": "0.0.0.0:9324", "credentials": {"SHOP": HIDDEN}}
    plan = planned(tmp_path, {**configured(), "sqs": sqs})
    assert plan.config.section(SqsConfig).credentials == {"SHOP": HIDDEN}
    assert HIDDEN not in repr(plan)
    assert HIDDEN not in plan.mask(f"a text with {HIDDEN}")


def test_the_topic_to_send_to_is_named_where_a_worker_reads_several(tmp_path: Path) -> None:
    (worker,) = planned(tmp_path, configured(topics=["orders", "refunds"])).workers
    assert send_topic(worker.config) is None
    keys = {"topics": ["orders", "refunds"], "pull": {"send_to": "refunds"}}
    (worker,) = planned(tmp_path, configured(**keys)).workers
    assert send_topic(worker.config) == "refunds"


def test_check_tells_how_long_a_lease_may_last(tmp_path: Path) -> None:
    keys = {"ordering": "key", "window": {"cells": 4, "cell_records": 50}}
    plan = planned(tmp_path, configured(pull={"max_in_flight": 60}, **keys))
    features = App("queues").features
    (bounds,) = features.bounds(plan, 20.0)["sqs"]
    assert isinstance(bounds, QueueBounds)
    assert (bounds.queue, bounds.window_records) == ("orders.fifo", 200)
    assert bounds.longest_leases == (LongestLease(20.0, 10.0),)
    (without_rate,) = features.bounds(plan, None)["sqs"]
    assert isinstance(without_rate, QueueBounds)
    assert [each.seconds for each in without_rate.longest_leases] == [2.0, 0.2]
    assert len(list(bounds.in_words())) == 5


def test_replicas_listen_on_addresses_of_their_own(tmp_path: Path) -> None:
    features = App("queues").features
    plans = [
        planned(tmp_path, {**configured(), "sqs": {"listen": f"127.0.0.1:{port}"}})
        for port in (9321, 9322)
    ]
    features.refuse_replicas(*plans)
    with pytest.raises(UsageError):
        features.refuse_replicas(plans[0], plans[0])


def test_a_certificate_that_cannot_be_read_is_found_before_a_start(tmp_path: Path) -> None:
    tls = {"certificate": "nothing.pem", "key": "nothing.key"}
    plan = planned(tmp_path, {**configured(), "sqs": {"listen": "127.0.0.1:1", "tls": tls}})
    with pytest.raises(ConfigError):
        App("queues").features.refuse(plan)
