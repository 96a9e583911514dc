"""Each log line has an id that programs can go by."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator

import pytest

from docs import log_events as page
from tests.architecture.sources import trees
from window_consumer.model.log_events import LogEvent

_ALWAYS = {"debug", "info", "warning", "exception", "critical"}
_OF_LOGGERS = {"error", "log", "warn"}
"""Methods of these names belong to other objects as well; loggers have a name that says so."""
_LOGGER = re.compile(r"log(ger|s)?$|reports$", re.IGNORECASE)


def log_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that write a log line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            method, owner = node.func.attr, node.func.value
            name = getattr(owner, "attr", getattr(owner, "id", ""))
            if method in _ALWAYS or (method in _OF_LOGGERS and _LOGGER.search(name)):
                yield node


def has_event(call: ast.Call) -> bool:
    """Return whether a call says which event it is: by name, or with the one it was given."""
    given = [*call.args, *(each.value for each in call.keywords)]
    return any(
        (isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "LogEvent")
        or (isinstance(node, ast.Name) and node.id == "event")
        for argument in given
        for node in ast.walk(argument)
    )


def lines_without(tree: ast.AST) -> list[int]:
    return [call.lineno for call in log_calls(tree) if not has_event(call)]


def test_no_log_line_of_the_package_lacks_an_event() -> None:
    missing = [f"{path}:{line}" for path, tree in trees().items() for line in lines_without(tree)]
    assert not missing


@pytest.mark.parametrize(
    "source",
    [
        'LOGGER.warning("%s", text)',
        'self._log.log(level, "%s", text)',
        'self._logger.error("%s", text, extra={"worker": name})',
        'self._reports.warn("text")',
        'logging.getLogger().info("text")',
    ],
)
def test_a_log_line_without_an_event_is_found(source: str) -> None:
    assert lines_without(ast.parse(source)) == [1]


@pytest.mark.parametrize(
    "source",
    [
        'LOGGER.warning("%s", text, extra={"event": LogEvent.CALL_FAILED})',
        'self._reports.warn(LogEvent.CALL_FAILED, "text")',
        'self._log.info(event, "text")',
        "message.error()",
        "broker.log(topic, partition)",
    ],
)
def test_a_log_line_with_an_event_is_accepted(source: str) -> None:
    assert not lines_without(ast.parse(source))


def test_events_are_subject_and_participle() -> None:
    assert not [each for each in LogEvent if not re.fullmatch(r"[a-z_]+\.[a-z_]+", each)]
    assert len({each.value for each in LogEvent}) == len(LogEvent.__members__)
    assert all(each.meaning for each in LogEvent)


def test_every_event_is_the_one_of_some_line() -> None:
    used = {
        node.attr
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "LogEvent"
    }
    assert used == set(LogEvent.__members__)


def test_an_event_crosses_from_a_child_process() -> None:
    crossed = pickle.loads(pickle.dumps(LogEvent.CALL_FAILED))  # noqa: S301 - made right here
    assert crossed is LogEvent.CALL_FAILED


def test_the_page_lists_all_events() -> None:
    committed = page.PAGE.read_text("utf-8")
    assert committed == page.rendered(committed), "stale: python -m docs.log_events"
