"""Tests compare ids, classes and values; what users read word for word stands in golden texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden_texts import GoldenFile

TESTS = Path(__file__).parents[1]

_SENTENCE = re.compile(r"\b[A-Za-z][a-z']+,? [a-z][a-z']*,? [a-z][a-z']+\b")
_COMPARING = {
    *("containing", "said", "until_said", "wait_for", "to_have_text", "to_contain_text"),
    *("startswith", "endswith", "search", "fullmatch", "match", "count", "index"),
}
"""Functions that compare a text with what they are given."""


def is_english(text: str) -> bool:
    """Return whether a text has three words of a sentence, one after another."""
    return _SENTENCE.search(text) is not None


def sentences(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the texts within a node that are English."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            if is_english(each.value):
                yield each
        elif isinstance(each, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "X" for part in each.values)
            if is_english("".join(map(str, parts))):
                yield each


def compared(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a comparison, or a call that compares, is given."""
    if isinstance(node, ast.Compare):
        if isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
            yield from (node.left, *node.comparators)
    elif isinstance(node, ast.Call):
        yield from (each.value for each in node.keywords if each.arg == "match")
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in _COMPARING:
            texts = ast.Constant, ast.JoinedStr
            yield from (each for each in node.args if isinstance(each, texts))


def english_lines(source: str) -> set[int]:
    """Return the lines with sentences that something is compared with."""
    nodes = (each for node in ast.walk(ast.parse(source)) for each in compared(node))
    return {text.lineno for node in nodes for text in sentences(node)}


def test_no_line_compares_english() -> None:
    found = [
        f"{file.relative_to(TESTS)}:{line}"
        for file in sorted(TESTS.rglob("*.py"))
        if file != Path(__file__)
        for line in sorted(english_lines(file.read_text(encoding="utf-8")))
    ]
    assert found == [], "compare ids and values, or take a golden text"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("assert 'there is no table' in text", {1}),
        ("assert text == (\n    f'{name} is missing here'\n)", {2}),
        ("with pytest.raises(ValueError, match='is not a name'): ...", {1}),
        ("page.wait_for('the token is wrong')", {1}),
        ("assert text.startswith('nothing was found')", {1}),
        ("assert names == ['orders', 'refunds']", set()),
        ("producer.produce('what a record says')", set()),
        ("assert 'workers.charge.memory' in text", set()),
    ],
)
def test_a_comparison_with_english_is_found(source: str, lines: set[int]) -> None:
    assert english_lines(source) == lines


def test_each_golden_text_belongs_to_a_test() -> None:
    unknown = []
    for folder in TESTS.rglob("golden"):
        for path in folder.glob("test_*.txt"):
            tests = (folder.parent / f"{path.stem}.py").read_text(encoding="utf-8")
            names = {name.partition("[")[0] for name in GoldenFile(path).read()}
            unknown += [f"{path}: {name}" for name in names if f"def {name}(" not in tests]
    assert unknown == []
