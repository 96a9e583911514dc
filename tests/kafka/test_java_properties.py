"""Properties of the Java client are refused with what to write instead."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Consumer, KafkaException

from window_consumer.kafka.settings import refusals
from window_consumer.kafka.settings.check import FOR_ALL
from window_consumer.kafka.settings.java_properties import JAVA_ONLY

TAKEN_WITHOUT_EFFECT = {"max.poll.records"}


@pytest.mark.parametrize("key", sorted(JAVA_ONLY))
def test_the_client_does_not_have_what_is_refused_and_has_what_is_recommended(key: str) -> None:
    ((refused, reason),) = refusals({key: "x"}, "consumer")
    assert refused == key
    assert reason.startswith(f"{key} ")
    if key not in TAKEN_WITHOUT_EFFECT:
        assert answer_of_client(key) != ""
    for other in re.findall(r"use ([a-z]+(?:\.[a-z]+)+)", reason):
        assert has(other)


def answer_of_client(key: str) -> str:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, key: "5"}
    try:
        Consumer(settings).close()
    except KafkaException as error:
        return str(error)
    return ""


def has(key: str) -> bool:
    return f'property: "{key}"' not in answer_of_client(key)


def test_assignors_are_named_as_the_client_names_them() -> None:
    java = "org.apache.kafka.clients.consumer.RangeAssignor"
    settings = {"group.protocol": "classic", "partition.assignment.strategy": java}
    ((key, reason),) = refusals(settings, "consumer")
    assert (key, reason[-11:]) == ("partition.assignment.strategy", "write range")
    assert not list(refusals({**settings, key: "range"}, "consumer"))


@pytest.mark.parametrize("key", sorted(FOR_ALL))
def test_what_is_recommended_for_a_misspelt_name_exists(key: str) -> None:
    assert has(key)
