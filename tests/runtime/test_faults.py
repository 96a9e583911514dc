from __future__ import annotations

import re
import weakref
from traceback import FrameSummary
from typing import Any

import pytest

from tests.golden_texts import Golden
from window_consumer.model.errors import Expired
from window_consumer.model.fault import Fault
from window_consumer.runtime.calls import result_guard, steps
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.stack import shown_part


class PaymentError(Exception):
    pass


def pay(amount: int) -> None:
    raise PaymentError(f"declined: {amount}")


def pay_elsewhere() -> None:
    raise PaymentError("declined: 1")


def caught(function: object, *arguments: object) -> BaseException:
    """Raise below one frame, the way that a handler raises below the slot's loop."""
    try:
        function(*arguments)  # type: ignore[operator] # a function of this module
    except BaseException as error:
        return error
    raise AssertionError


def fault_of(function: object, *arguments: object) -> Fault:
    return ErrorReports().failure(caught(function, *arguments)).fault


def test_a_fault_names_class_text_and_the_handlers_frames() -> None:
    fault = fault_of(pay, 7)
    assert fault.error_class == f"{__name__}.PaymentError"
    assert fault.message == "declined: 7"
    assert "in pay" in fault.stack
    assert "in caught" not in fault.stack


def test_errors_from_one_place_share_a_fingerprint_whatever_they_say() -> None:
    assert fault_of(pay, 1).fingerprint == fault_of(pay, 2).fingerprint


def test_errors_from_different_places_or_of_different_classes_do_not() -> None:
    fingerprints = {
        fault_of(pay, 1).fingerprint,
        fault_of(pay_elsewhere).fingerprint,
        fault_of(lambda: dict[int, int]()[1]).fingerprint,
    }
    assert len(fingerprints) == 3


def test_the_exceptions_that_led_to_it_are_reported() -> None:
    def handler() -> None:
        try:
            pay(1)
        except PaymentError as error:
            raise RuntimeError("order not charged") from error

    stack = fault_of(handler).stack
    assert "RuntimeError" in stack
    assert "PaymentError" in stack
    assert "in pay" in stack


def test_a_group_of_one_is_the_exception_that_it_holds_and_says_where_it_was_gathered() -> None:
    def gather() -> None:
        inner = BaseExceptionGroup("inner", [caught(pay, 7)])
        raise BaseExceptionGroup("unhandled", [inner])

    failure = ErrorReports().failure(caught(gather))
    assert isinstance(failure.error, PaymentError)
    fault = failure.fault
    assert (fault.error_class, fault.message) == (f"{__name__}.PaymentError", "declined: 7")
    assert fault.stack.index("in pay") < fault.stack.index("in gather")


def test_of_a_group_of_several_each_is_reported() -> None:
    def gather() -> None:
        errors = [caught(pay, 7), caught(lambda: dict[int, int]()[1])]
        raise BaseExceptionGroup("unhandled", errors)

    failure = ErrorReports().failure(caught(gather))
    fault = failure.fault
    assert isinstance(failure.error, ExceptionGroup)
    assert fault.error_class == "ExceptionGroup"
    assert fault.message.endswith(f": {__name__}.PaymentError: declined: 7; KeyError: 1")
    assert "in pay" in fault.stack
    assert "KeyError:\n" in fault.stack


def test_what_led_to_an_error_at_one_place_is_not_taken_for_another() -> None:
    def gather(error: type[Exception]) -> None:
        raise RuntimeError from error()

    faults = ErrorReports()
    for kind in (ValueError, TypeError):
        assert kind.__name__ in faults.failure(caught(gather, kind)).fault.stack


def test_an_exception_that_leads_to_itself_ends_the_chain() -> None:
    def handler() -> None:
        first, second = ValueError("a"), ValueError("b")
        first.__cause__, second.__cause__ = second, first
        raise first

    assert fault_of(handler).message == "a"


def test_a_text_that_cannot_be_read_is_no_second_error(golden: Golden) -> None:
    class SlyError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def handler() -> None:
        raise SlyError

    golden(fault_of(handler).message)


def torn() -> None:
    raise ExceptionGroup("grüße\ud83d", [ValueError("unknown: J\ud83d"), KeyError("J\ude00")])


@pytest.mark.parametrize("redact", [None, lambda text: f"\ud83d{text}"])
def test_half_a_character_in_a_text_does_not_keep_it_from_being_written(redact: Any) -> None:
    error = caught(torn)
    message = ErrorReports(redact=redact).failure(error).fault.message
    message.encode()
    assert r"unknown: J\ud83d" in message
    assert r"grüße\ud83d" in message


def test_nothing_that_the_handlers_frames_held_stays_alive() -> None:
    class Payload:
        pass

    payload = Payload()
    alive = weakref.ref(payload)

    def handler(held: list[Payload]) -> None:
        mine = held.pop()
        raise ValueError(len(str(mine)))

    held = [payload]
    del payload
    failure = ErrorReports().failure(caught(handler, held))
    assert alive() is None
    assert failure.error.args


@pytest.mark.parametrize("secret", ["hunter2", "a b"])
def test_secrets_are_masked(secret: str) -> None:
    def handler() -> None:
        raise ValueError(f"login: {secret}")

    faults = ErrorReports(mask=lambda text: text.replace(secret, "***"))
    fault = faults.failure(caught(handler)).fault
    assert fault.message == "login: ***"
    assert secret not in fault.stack


def without_numbers(text: str) -> str:
    return re.sub("[0-9]+", "#", text)


def refused() -> None:
    raise ValueError("card 4711 was refused")


def test_what_is_confidential_is_taken_out_of_a_text() -> None:
    fault = ErrorReports(redact=without_numbers).failure(caught(refused)).fault
    assert fault.message == "card # was refused"
    assert fault.words == "ValueError: card # was refused"


def test_the_redactor_sees_no_secrets() -> None:
    seen: list[str] = []

    def redact(text: str) -> str:
        seen.append(text)
        return text

    ErrorReports(lambda text: text.replace("4711", "***"), redact).failure(caught(refused))
    assert seen == ["card *** was refused"]


def test_texts_stay_at_home_where_only_classes_are_reported() -> None:
    fault = ErrorReports(redact=without_numbers, messages="class").failure(caught(refused)).fault
    assert (fault.error_class, fault.message, fault.words) == ("ValueError", "", "ValueError")
    assert "in refused" in fault.stack
    assert "4711" not in fault.stack.replace('ValueError("card 4711', "")


@pytest.mark.parametrize(
    ("redact", "reported"),
    [
        (lambda text: text / 2, "<withheld: @app.redact raised TypeError>"),
        (lambda _text: None, "<withheld: @app.redact returned NoneType, no text>"),
    ],
)
def test_a_redactor_that_fails_withholds_the_text(redact: Any, reported: str) -> None:
    assert ErrorReports(redact=redact).failure(caught(refused)).fault.message == reported


def test_what_we_say_ourselves_needs_no_redactor() -> None:
    def expired() -> None:
        raise Expired("expired 3.0 s ago", "dead_letter")

    faults = ErrorReports(redact=without_numbers, messages="class")
    assert faults.failure(caught(expired)).fault.message == "expired 3.0 s ago"
    assert "4.0 s" in faults.stalled([], 4.0).fault.message


def test_many_places_do_not_fill_the_memory() -> None:
    faults = ErrorReports()
    for number in range(600):
        namespace: dict[str, object] = {}
        exec(f"def handler():\n  {number}\n  raise ValueError", namespace)  # noqa: S102 - makes a place of its own each time
        faults.failure(caught(namespace["handler"]))
    assert len(faults._known) <= 256


def test_the_stack_of_a_child_process_begins_with_the_handler() -> None:
    files = [result_guard.__file__, steps.__file__, "shop.py", "sqlalchemy.py"]
    lines = [FrameSummary(each, 1, each) for each in files]
    assert list(shown_part(lines)) == lines[2:]
    assert list(shown_part(lines[2:])) == lines[2:]
    assert list(shown_part(lines[:2])) == lines[:2]  # it waits for the framework
