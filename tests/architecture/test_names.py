"""Names: files are called what the field calls them, classes once, methods what they do."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.architecture.sources import trees

WORDS = Path(__file__).with_name("words_of_files.txt")
"""What names of the package's files consist of: our own words, and those of Kafka and the field."""

BANNED = {
    *("bereave", "bury", "buries", "forget", "forgets", "go_on", "goes_on"),
    *("hear", "heard", "hears", "look", "looked", "looks", "note", "noted"),
    *("said", "say", "says", "tell", "tells", "told"),
}
"""First words of methods; record, report, return, check or remove says what happens."""

MOST_FILES = 20
"""In one folder; with more, nobody finds a place at a glance."""

_LOOKUP = re.compile(r"_*look_?up")


def known_words() -> list[str]:
    return WORDS.read_text(encoding="utf-8").splitlines()


def words_of_files() -> dict[str, Path]:
    words: dict[str, Path] = {}
    for path in map(Path, trees()):
        for part in (*path.parts[:-1], path.stem.strip("_")):
            if part != "init":
                words |= dict.fromkeys(part.split("_"), path)
    return words


def is_banned(name: str) -> bool:
    words = name.strip("_").split("_")
    return not _LOOKUP.match(name) and (words[0] in BANNED or "_".join(words[:2]) in BANNED)


def test_each_word_of_a_file_name_is_a_known_one() -> None:
    known = set(known_words())
    unknown = {word: str(path) for word, path in words_of_files().items() if word not in known}
    assert unknown == {}, f"add the field's word to {WORDS.name}, or take another"


def test_known_words_are_sorted_and_used() -> None:
    assert known_words() == sorted(set(known_words()) & set(words_of_files()))


def test_no_folder_holds_more_files_than_one_sees_at_a_glance() -> None:
    paths = map(Path, trees())
    files = Counter(path.parent for path in paths if path.name != "__init__.py")
    assert {str(folder): count for folder, count in files.items() if count > MOST_FILES} == {}


def test_class_names_are_unique() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path}:{node.lineno}")
    assert {name: at for name, at in places.items() if len(at) > 1} == {}


def test_no_definition_begins_with_a_banned_verb() -> None:
    found = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_banned(node.name)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("name", "banned"),
    [("tell", True), ("_go_on_at", True), ("note_sent", True), ("lookup", False), ("noted", True)],
)
def test_a_banned_verb_is_found_at_the_beginning(name: str, banned: bool) -> None:  # noqa: FBT001 - parametrized
    assert is_banned(name) is banned
