"""Links, commands and names in the documentation exist."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import window_consumer
from tests.docs.pages import PAGES, ROOT, anchors, blocks, commands, links, word_count
from window_consumer.app.features import FEATURES
from window_consumer.cli.main import cli
from window_consumer.config import config_page
from window_consumer.config.options import options, subsections
from window_consumer.config.sections.kafka_properties import KafkaConfig
from window_consumer.engine.commits.commit_metadata import decode
from window_consumer.model import headers
from window_consumer.spark.config import PipelineConfig
from window_consumer.spark.wire import sections

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

WITHOUT_LIMIT = {
    *("CHANGELOG.md", "docs/api.md", "docs/commands.md", "docs/config.md", "docs/metrics.md")
}
"""Reference pages that nobody reads as a whole: the changelog, and generated pages."""

MOST_WORDS = 2_500

PROGRAMS = {
    *("cd", "curl", "docker", "export", "git", "kafka-topics.sh", "kill", "pip", "python", "rm"),
    "touch",
}
"""Other programs that readers have."""


def test_the_configuration_page_is_what_the_classes_say() -> None:
    committed = (ROOT / "docs/config.md").read_text("utf-8")
    assert committed == config_page(FEATURES.sections).rstrip() + "\n", (
        "stale: python -m window_consumer schema --markdown > docs/config.md"
    )


def test_the_pipelines_page_names_every_key_of_its_configuration() -> None:
    page = (ROOT / "docs/pipeline.md").read_text("utf-8")
    keys = {"kafka"}
    for name, kind in subsections(PipelineConfig, sections()).items():
        if kind is not KafkaConfig:
            keys |= {name} if kind is None else {f"{name}.{each}" for each in options(kind)}
    assert {key for key in keys if f"`{key}`" not in page} == set()


def test_the_metadata_of_the_page_on_commits_says_what_the_page_says_of_it() -> None:
    (example,) = blocks(ROOT / "docs/wire-commits.md", "text")
    note = decode(example.text.strip())
    assert note is not None
    assert (note.next_offset, note.finished, note.known_partitions) == (42, (range(47, 54),), 4)


def test_the_wire_page_names_every_header_that_a_copy_can_carry() -> None:
    page = (ROOT / "docs/wire.md").read_text("utf-8")
    written = [value for name, value in vars(headers).items() if name.isupper()]
    for name in [each for each in written if isinstance(each, str) and each != headers.PREFIX]:
        assert f"`{name}`" in page


def test_the_page_of_log_lines_quotes_lines_that_are_written() -> None:
    page = (ROOT / "docs/log-lines.md").read_text("utf-8")
    (table,) = re.findall(r"^\| line \|.*", page, re.MULTILINE | re.DOTALL)
    quoted = [text for row in table.splitlines()[2:] for text in code_in(row.split(" | ")[0])]
    assert len(quoted) > 15
    written = "\n".join(texts_of_the_package())
    for text in quoted:
        for part in text.split("..."):
            assert part.strip(" :;") in written, text


def texts_of_the_package() -> Iterator[str]:
    """Yield all texts in the code, with ``...`` for their placeholders."""
    for file in (ROOT / "window_consumer").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(each.value) if isinstance(each, ast.Constant) else "..."
                    for each in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"%[.\d]*[a-z]", "...", node.value)


def test_the_architecture_page_names_every_folder() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    package = ROOT / "window_consumer"
    folders = {each.name for each in package.iterdir() if (each / "__init__.py").exists()}
    assert sorted(folders - set(re.findall(r"(\w+)/", page))) == []


def test_the_page_on_embedding_names_errors_that_can_be_imported() -> None:
    page = (ROOT / "docs/embedding.md").read_text("utf-8")
    named = {name for name in code_in(page) if name.endswith("Error")}
    assert len(named) > 5
    assert named <= set(vars(window_consumer)) | set(vars(builtins))


def code_in(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def test_no_page_is_longer_than_a_reader_has_patience() -> None:
    counts = {name: word_count(page) for name, page in zip(NAMES, PAGES, strict=True)}
    long = {name: count for name, count in counts.items() if count > MOST_WORDS}
    assert set(long) <= WITHOUT_LIMIT, long


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    inside = [link for link in links(page) if not re.match(r"https?:", link)]
    for link in inside:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page}: {link}"
        assert not anchor or anchor in anchors(target), f"{page}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_exist_with_these_options(page: Path) -> None:
    for line in commands(page):
        for part in line.split("&&"):
            assert _exists(shlex.split(part)), f"{page}: {line}"


def _exists(words: list[str]) -> bool:
    """Return whether a reader can type this command; programs of others are not checked."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text("utf-8")
        targets = [word for word in words[1:] if "=" not in word]
        return all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    if words[0].endswith("python") and words[1] == "-m":
        return importlib.util.find_spec(words[2]) is not None
    if words[0].endswith("window-consumer"):
        return _parses(words[1:])
    if words[0].startswith("."):
        return words[0] == "." or (ROOT / words[0]).exists()
    return words[0] in PROGRAMS


def _parses(arguments: list[str]) -> bool:
    """Let click read the arguments without running anything."""
    context = cli.make_context("window-consumer", list(arguments), resilient_parsing=True)
    name, command, rest = cli.resolve_command(context, arguments)
    assert command is not None
    try:
        context = command.make_context(name, rest, parent=context)
        if isinstance(command, click.Group):
            name, command, rest = command.resolve_command(context, rest)
            assert command is not None
            command.make_context(name, rest, parent=context)
    except click.exceptions.Exit:
        return True
    except click.UsageError:
        return False
    return True


def test_the_sites_navigation_has_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    inside = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}
    shown = {each for each in inside if not each.startswith("decisions/")}
    assert shown - set(re.findall(r"[\w/-]+\.md", navigation)) == set(), "add it to mkdocs.yml"


MOST_WORDS_OF_ALL = 42_000
"""For the site without generated pages, decisions and lab. Only lower it."""


def test_all_pages_together_can_be_read() -> None:
    left_out = (*WITHOUT_LIMIT, "docs/log-events.md", "docs/decisions/", "docs/lab/")
    read = [page for name, page in zip(NAMES, PAGES, strict=True) if not name.startswith(left_out)]
    assert sum(map(word_count, read)) <= MOST_WORDS_OF_ALL
