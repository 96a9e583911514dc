"""Outcomes are rows of one table: a new one needs a row, and the module that makes it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, trees
from tests.commands import DEADLINE_S
from window_consumer.model.outcome import OUTCOMES, Outcome, add, of_number

TABLE = "model/outcome.py"

CALLS, ACKS = "engine/retry/completion.py", "engine/retry/acks.py"
RECORDS = "engine/retry/record_outcomes.py"
MAKERS: dict[str, set[str]] = {
    "OPEN": {
        "engine/window.py",
        "engine/partition.py",
        "engine/commits/at_most_once.py",
        "trace/recording/worker_trace.py",
    },
    "DONE": {CALLS, ACKS},
    "MOVED": {ACKS},
    "DEAD_LETTERED": {ACKS, RECORDS, "parking/rules.py"},
    "EXPIRED": {RECORDS},
    "DROPPED": {RECORDS},
    "SKIPPED": {"model/errors.py", RECORDS},
    "FILTERED": {"model/errors.py"},
    "DEDUPLICATED": {"database/once/calls.py"},
    "PARKED": {"parking/rules.py", "parking/topics.py", "simulator/parking.py"},
    "ROTATED": {"parking/rotation.py"},
    "DELAYED": {"delay/waiting.py", "delay/wheel/rule.py"},
    "CANCELLED": {"delay/cancel_layer.py"},
    "LOST": {"engine/commits/losses.py"},
    "EARLIER": {"engine/partition.py", "engine/intake.py", RECORDS},
}
"""The modules that may name a member: those that make its outcome, and count it."""


def members(tree: ast.Module) -> Iterator[str]:
    """Yield the members of Outcome that a module names."""
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "window_consumer.model.outcome"
        for alias in node.names
        if alias.name == "Outcome"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if owner in names | {"Outcome"} and node.attr.isupper():
                yield node.attr


def test_a_member_is_named_only_where_its_outcome_is_made() -> None:
    named: dict[str, set[str]] = {name: set() for name in MAKERS}
    for place, tree in trees().items():
        for name in members(tree) if place != TABLE else ():
            named[name].add(place)
    assert named == MAKERS


def test_an_outcome_of_a_feature_is_spelled_out_in_three_files_at_most() -> None:
    files = [each for end in ("py", "js", "html") for each in PACKAGE.rglob(f"*.{end}")]
    found = {
        file.relative_to(PACKAGE).as_posix()
        for file in files
        if "deduplicated" in file.read_text("utf-8").lower()
    }
    outside = {each for each in found if not each.startswith("database/")}
    assert outside == {TABLE, "testing/__init__.py", "testing/findings.py"}


def test_numbers_steps_and_names_are_never_used_again() -> None:
    assert [row.number for row in sorted(OUTCOMES, key=lambda row: row.number)] == [*range(1, 15)]
    steps = [row.step for row in OUTCOMES if row.step]
    assert len(steps) == len(set(steps))
    for number, name in ((1, "else"), (200, "done")):
        with pytest.raises(ValueError, match="taken"):
            add(Outcome(number=number, name=name, words=name))


def test_a_number_of_a_later_version_has_a_name_too() -> None:
    assert of_number(Outcome.DONE.number) is Outcome.DONE
    assert of_number(200).words == "outcome 200"


def test_a_new_row_is_counted_shown_traced_and_audited_without_another_change(
    tmp_path: Path,
) -> None:
    script = Path(__file__).with_name("new_outcome.py")
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found == {
        "metrics": ["window_consumer_records_shelved_total 2"],
        "snapshot": 2,
        "frame": 2,
        "page": True,
        "cell": "shelved",
        "top": True,
        "stopped": 2,
        "traced": ["shelved", "shelved"],
        "journey": "shelved",
        "audited": 2,
        "report": "shelved",
        "test kit": "SHELVED",
    }
