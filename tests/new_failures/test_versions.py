"""A new version fails as no other one did: the worker is paused, and a person decides."""

from __future__ import annotations

from time import sleep
from typing import Any

import pytest

from tests.new_failures.shop import HANDLERS, QUIET_S, Shop
from window_consumer.model.log_events import LogEvent

RECORDS = 300


@pytest.mark.parametrize("form", HANDLERS)
def test_a_new_failure_pauses_the_worker_until_somebody_resumes_it(form: str, shop: Shop) -> None:
    shop.configure(batches=form == "batches", action="pause", min_calls=10)
    shop.fail_once("1", "old_bug", form)
    shop.produce(RECORDS, bad_every=2)
    version = shop.start("2", "new_bug", form)
    line = version.found()
    assert line["paused"]
    before, dead_letters = version.settled(), shop.dead_letters()
    snapshot = version.snapshot()
    assert snapshot["halted"]
    assert [each["kind"] for each in snapshot["findings"]] == ["new_failure"]
    sleep(QUIET_S)
    assert (version.finished(), shop.dead_letters()) == (before, dead_letters)
    assert before < RECORDS
    assert version.resume().code == 0
    version.wait_for(RECORDS)
    assert not version.snapshot()["halted"]
    assert len(version.command.lines_of(LogEvent.NEW_FAILURE_FOUND)) == 1
    accepted = version.command.wait_for_event(LogEvent.NEW_FAILURE_ACCEPTED)
    assert accepted["fingerprints"] == [line["fingerprint"]]


def test_what_another_version_has_among_the_dead_letters_pauses_nothing(shop: Shop) -> None:
    shop.configure(action="pause", min_calls=10)
    shop.fail_once("1", "old_bug")
    shop.produce(RECORDS, bad_every=2)
    version = shop.start("2", "old_bug")
    version.wait_for(RECORDS)
    assert not version.command.lines_of(LogEvent.NEW_FAILURE_FOUND)


def test_dead_letters_of_the_same_version_say_nothing(shop: Shop) -> None:
    shop.configure(action="pause", min_calls=10)
    shop.fail_once("2", "new_bug")
    shop.produce(RECORDS, bad_every=2)
    assert shop.start("2", "new_bug").found()["paused"]


def test_a_failure_that_takes_few_calls_pauses_nothing(shop: Shop) -> None:
    shop.configure(action="pause", min_calls=10, share="60%")
    shop.produce(RECORDS, bad_every=2)
    version = shop.start("2", "new_bug")
    version.wait_for(RECORDS)
    assert not version.command.lines_of(LogEvent.NEW_FAILURE_FOUND)


def test_alert_reports_it_and_pauses_nothing(shop: Shop) -> None:
    shop.configure(action="alert", min_calls=10)
    shop.produce(RECORDS, bad_every=2)
    version = shop.start("2", "new_bug")
    assert not version.found()["paused"]
    version.wait_for(RECORDS)
    assert [each["cause"] for each in version.doctor()["causes"]] == ["new_failure"]
    assert version.resume().code == 0
    assert version.doctor()["ok"]


def test_doctor_says_what_paused_the_worker_and_how_to_resume_it(shop: Shop) -> None:
    shop.configure(action="pause", min_calls=10)
    shop.produce(RECORDS, bad_every=2)
    version = shop.start("2", "new_bug")
    fingerprint = version.found()["fingerprint"]
    cause, *_ = version.doctor()["causes"]
    assert cause["cause"] == "new_failure"
    assert cause["figures"]["fingerprint"] == fingerprint
    assert f"window-consumer resume --worker charge --url {version.url}" in cause["sentence"]


@pytest.mark.parametrize("command", ["run", "check"])
def test_an_application_without_a_version_is_refused(command: str, shop: Shop) -> None:
    shop.configure(action="pause")
    shop.write("", "new_bug")
    ended = shop.commands.run(command, "shop:app")
    assert ended.code == 2
    assert "workers.charge.on_new_failure" in ended.err
    assert "version=" in ended.err


@pytest.mark.parametrize(
    ("rules", "retry"), [({"share": "10%"}, {}), ({"action": "pause"}, {"when_spent": "drop"})]
)
def test_rules_without_an_action_or_without_dead_letters_are_refused(
    rules: dict[str, Any], retry: dict[str, Any], shop: Shop
) -> None:
    shop.configure_workers(charge={"on_new_failure": rules, "retry": retry})
    shop.write("2", "new_bug")
    ended = shop.commands.run("check", "shop:app")
    assert ended.code == 2
    assert "workers.charge.on_new_failure" in ended.err


def test_resume_names_a_worker_that_is_not_there(shop: Shop) -> None:
    shop.configure(action="pause")
    ended = shop.start("2", "new_bug").resume("refund")
    assert ended.code == 1
    assert "refund" in ended.err


def test_of_two_workers_only_the_one_that_fails_is_paused(shop: Shop) -> None:
    shop.embedded.create_topic("refunds", 1)
    rules = {"on_new_failure": {"action": "pause", "min_calls": 10}, "retry": {"attempts": 1}}
    shop.configure_workers(
        charge=rules,
        refund={"topics": ["refunds"], "group": "refunds", "handler": "charge", **rules},
    )
    shop.produce(RECORDS, bad_every=2)
    shop.produce(RECORDS, topic="refunds")
    version = shop.start("2", "new_bug")
    assert version.found()["worker"] == "charge"
    version.wait_for(RECORDS, "refund")
    assert not version.snapshot("refund")["halted"]
    assert version.settled() < RECORDS
