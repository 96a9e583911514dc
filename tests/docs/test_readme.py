"""README: its first screen is short, true, and needs no words of our own."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, blocks, functions, table

README = ROOT / "README.md"
TEXT = README.read_text("utf-8")

OWN_WORDS = (
    "cell",
    "epoch",
    "ladder",
    "lane",
    "level",
    "slice",
    "slide",
    "slot",
    "wheel",
    "window",
)
JVM = re.compile(r"\(JVM\)")


def prose() -> str:
    """Return README without code and without the addresses of links."""
    without_blocks = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`|\]\([^)]*\)", " ", without_blocks)


def test_it_is_short() -> None:
    assert len(TEXT.split()) <= 1100


def test_the_code_of_the_first_screen_has_twelve_lines() -> None:
    shown = [*blocks(README, "python"), *blocks(README, "yaml")]
    assert sum(bool(line.strip()) for block in shown for line in block.text.splitlines()) == 12


def test_there_is_one_line_to_install_and_one_to_run() -> None:
    (first, *_) = blocks(README, "console")
    assert len(re.findall(r"\bpip install\b", first.text)) == 1
    assert len(re.findall(r"\bwindow-consumer run\b", first.text)) == 1


@pytest.mark.parametrize("word", OWN_WORDS)
def test_it_needs_no_word_of_our_own(word: str) -> None:
    assert not re.search(rf"\b{word}s?\b", prose(), re.IGNORECASE)


def test_five_bullets_each_name_a_test_that_exists() -> None:
    bullets = re.findall(r"^- \*\*.*?(?=^- |\n\n)", TEXT, re.MULTILINE | re.DOTALL)
    assert len(bullets) == 5
    for bullet in bullets:
        ((name, file),) = re.findall(r"\[`(test_\w+)`\]\((tests/[\w/]+\.py)\)", bullet)
        assert name in functions(file), f"{file}::{name}"


def test_the_comparison_begins_with_what_readers_run_today() -> None:
    first = [re.sub(r"[\[\]*]", "", row[0].partition("](")[0]) for row in table(README, "")[1:]]
    readers = ["confluent-kafka", "FastStream", "Celery", "dramatiq", "pyrallel-consumer", "arroyo"]
    assert [name.removeprefix("a ") for name in first[: len(readers) + 1]] == [
        "window_consumer",
        *readers,
    ]


def test_the_jvm_comes_last_in_the_comparison() -> None:
    is_jvm = [bool(JVM.search(row[0])) for row in table(README, "")[1:]]
    assert any(is_jvm)
    assert is_jvm == sorted(is_jvm)


def test_each_row_of_the_comparison_links_to_its_source() -> None:
    for row in table(README, "")[2:]:
        assert re.search(r"\]\(https://[^\s)]+\)", row[0]), row[0]
