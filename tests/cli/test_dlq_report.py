"""What a report on dead letters says, and that nobody's records command a page or a terminal."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.reports import NOW_MS, cause, example, findings, hours_ago, share
from tests.golden_texts import Golden
from window_consumer.cli.main import main
from window_consumer.dlq.cli import dlq_group
from window_consumer.dlq.commands.redrive import redrive_command
from window_consumer.dlq.commands.report import check_output, without_secrets, write
from window_consumer.dlq.commands.show import show_command
from window_consumer.dlq.report.page import page
from window_consumer.dlq.report.suggested_commands import redrive_of, why_none
from window_consumer.dlq.report.text import print_findings
from window_consumer.dlq.spark.findings import FailureGroup, KeySpread
from window_consumer.model.errors import UsageError
from window_consumer.model.redaction import Mask

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[31m\x00\u202e&amp;\udc80"


class Elements(HTMLParser):
    """Notes every element of a page, and whether each was closed."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in {"meta", "wbr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def hostile_cause() -> FailureGroup:
    names = ("reason", "handler", "version", "host", "partition", "group", "topic", "by")
    return cause(
        fingerprint=HOSTILE,
        reason=HOSTILE,
        error_class=HOSTILE,
        error_message=HOSTILE,
        sides={name: (share(HOSTILE, of=HOSTILE),) for name in (*names, "dead_letters")},
        keys=KeySpread(distinct=1, count=10, without=0, top=((HOSTILE, 10),)),
        examples=(
            example(
                id=HOSTILE,
                key=HOSTILE,
                handler=HOSTILE,
                error_stack=HOSTILE,
                headers=((HOSTILE, HOSTILE),),
                value=HOSTILE,
            ),
        ),
    )


def test_hostile_text_becomes_no_markup() -> None:
    hostile = hostile_cause()
    text = page(findings(hostile), f"{HOSTILE}.yaml")
    elements = Elements(text)
    assert not elements.open
    assert not {name for name, _ in elements.found} & {"script", "img", "link", "iframe", "object"}
    assert not [key for _, given in elements.found for key in given if key.startswith("on")]
    plain = Elements(page(findings(cause()), "workers.yaml"))
    style = next(given for name, given in plain.found if name == "meta" and "content" in given)
    assert style
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\udc80]", text)


def test_a_page_needs_nothing_from_outside_and_no_script() -> None:
    text = page(findings(cause(), hostile_cause()), "workers.yaml")
    assert "://" not in text
    assert "url(" not in text
    elements = Elements(text)
    for name, given in elements.found:
        assert name != "script"
        assert not {"src", "srcset", "style", "action"} & given.keys()
        assert (given.get("href") or "#").startswith("#")
    policy = [given["content"] for _, given in elements.found if "http-equiv" in given]
    assert policy
    assert policy[0] is not None
    assert policy[0].startswith("default-src 'none'")


def test_hostile_text_does_not_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_findings(findings(hostile_cause()), "workers.yaml")
    reported = capsys.readouterr().out
    assert "\\x1b[31m" in reported
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", reported)


def test_text_that_looks_like_richs_markup_is_shown_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_findings(findings(cause(error_message="[bold]x[/bold] [/nothing]")), "workers.yaml")
    assert "[bold]x[/bold] [/nothing]" in capsys.readouterr().out


def test_a_report_on_nothing_says_so(capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    print_findings(findings(), "workers.yaml")
    golden(capsys.readouterr().out)
    golden(page(findings(), "workers.yaml").partition("<body>")[2])


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({}, "fingerprint == '0123456789abcdef'"),
        ({"fingerprint": "it's $HOME \\ `x`"}, "fingerprint == 'it\\'s $HOME \\\\ `x`'"),
        (
            {"fingerprint": None, "reason": "EXPIRED", "error_class": None},
            "fingerprint == null and reason == 'EXPIRED' and class == null",
        ),
    ],
)
def test_the_command_that_puts_back_is_one_that_redrive_takes(
    changed: dict[str, Any], where: str
) -> None:
    """... word for word, from a shell."""
    one = cause(**changed)
    command = redrive_of(one, findings(one), "my workers.yaml")
    assert command is not None
    program, group, name, *arguments = shlex.split(command)
    assert (program, group, name) == ("window-consumer", "dlq", "redrive")
    parsed = redrive_command.make_context("redrive", [*arguments]).params
    assert str(parsed["config"]) == "my workers.yaml"
    assert parsed["topics"] == ("shop-charge.orders.dlq",)
    assert arguments[-1] == where


def test_the_command_that_shows_an_example_finds_it_in_whatever_topic(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """... from a shell: by itself `show` looks into the topics of workers only."""
    foreign = example(dead_letter="orders-dlt/0/9")
    report = findings(cause(sides={"by": (share("spring"),)}, examples=(foreign,)))
    command = "window-consumer dlq show -c 'my workers.yaml' --topic orders-dlt orders-dlt/0/9"
    print_findings(report, "my workers.yaml")
    assert f"latest: {command}\n" in capsys.readouterr().out
    assert command in unescape(page(report, "my workers.yaml"))
    parsed = show_command.make_context("show", shlex.split(command)[3:]).params
    assert (str(parsed["config"]), parsed["topics"]) == ("my workers.yaml", ("orders-dlt",))
    assert "orders-dlt/0/9" in parsed.values()


def test_a_command_chooses_only_what_the_report_is_about() -> None:
    one = cause()
    command = redrive_of(one, findings(one, since_ms=1_700_000_000_123), "workers.yaml")
    assert command is not None
    assert command.endswith("and time >= '2023-11-14T22:13:20.123'\"")


def test_what_redrive_cannot_choose_has_no_command(golden: Golden) -> None:
    assert redrive_of(hostile_cause(), findings(hostile_cause()), "workers.yaml") is None
    unseen = cause(fingerprint="a\x1b[31mb")
    assert redrive_of(unseen, findings(unseen), "workers.yaml") is None
    odd = cause(fingerprint=None, reason="A_LATER_ONE")
    assert redrive_of(odd, findings(odd), "workers.yaml") is None
    spring = cause(sides={"by": (share("spring"),)})
    assert redrive_of(spring, findings(spring), "workers.yaml") is None
    golden(why_none(spring))


@pytest.mark.parametrize(
    ("count", "first", "last", "is_on"),
    [(10, 5, 0.9, True), (10, 5, 1.5, False), (4, 72, 24, True), (100, 72, 24, False)],
)
def test_a_cause_goes_on_until_more_time_has_passed_than_lay_between(
    count: int, first: float, last: float, *, is_on: bool
) -> None:
    one = cause(count=count, first_ms=hours_ago(first), last_ms=hours_ago(last))
    assert one.is_on(NOW_MS) is is_on


def test_a_cause_begins_with_a_version_when_an_earlier_one_failed_otherwise() -> None:
    old = share("1", first=50, last=5, of="shop-charge")
    new = share("2", first=5, of="shop-charge")
    before, after = (cause(sides={"version": (old, new)}), cause(sides={"version": (new,)}))
    both = findings(before, after)
    assert both.began_with(before) is None
    assert both.began_with(after) == new
    alone = findings(after)
    assert alone.began_with(after) is None, "nobody knows what was before"
    elsewhere = findings(after, sides={"version": (share("1", first=50, of="other"), new)})
    assert elsewhere.began_with(after) is None, "a version of another application"


def test_how_many_had_been_put_back_before_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = cause(failed_again=3), cause(fingerprint="f" * 16, failed_again=0)
    report = findings(one, other)
    print_findings(report, "workers.yaml")
    reported = capsys.readouterr().out
    said = "3 of them had been put back before and failed again"
    assert reported.count(said) == 2, "of all, and of one cause"
    assert page(report, "workers.yaml").count(said) == 2
    print_findings(findings(other), "workers.yaml")
    assert "back before" not in capsys.readouterr().out


def test_how_many_were_put_back_and_how_many_wait_is_said(
    capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """... and what is put back as a whole has no command, and is not going on."""
    some, none = cause(put_back=4), cause(fingerprint="f" * 16)
    done = cause(fingerprint="d" * 16, put_back=10)
    report = findings(some, none, done)
    print_findings(report, "workers.yaml")
    reported, shown = capsys.readouterr().out, page(report, "workers.yaml")
    for text in (reported, shown):
        golden(text)
        assert text.count("dlq redrive") == 2
    rows = [line.split() for line in reported.splitlines() if "shop.NoCard" in line][:3]
    assert [(row[3], row[4]) for row in rows] == [("10", "6"), ("10", "10"), ("10", "0")]
    assert [" ".join(row[-2:]) for row in rows] == ["going on", "going on", "put back"]
    assert redrive_of(done, report, "workers.yaml") is None


def test_that_nobody_knows_what_was_put_back_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    one = cause(put_back=None)
    report = findings(one, put_back=None, put_back_unknown="no broker answers")
    said = "the number that were put back is unknown: no broker answers"
    print_findings(report, "workers.yaml")
    reported, shown = capsys.readouterr().out, page(report, "workers.yaml")
    assert said in reported
    assert said in shown
    assert "<dt>Waiting</dt>" not in shown
    assert "dlq redrive" in reported


def test_where_no_earlier_version_is_known_the_report_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """... as a version that had no dead letters may have run before; and not as a deploy."""
    first = share("2", 10, first=5, of="shop-charge")
    one = cause(sides={"version": (first,)})
    alone = findings(one)
    assert (alone.began_with(one), alone.oldest_known(one)) == (None, first)
    before = share("1", 10, first=50, of="shop-charge")
    later = findings(one, sides={**alone.sides, "version": (before, first)})
    assert (later.began_with(one), later.oldest_known(one)) == (first, None)
    unreported = cause(sides={"version": (share(None),)})
    assert findings(unreported).oldest_known(unreported) is None
    said = "seen since version 2 (shop-charge): no dead letters of earlier versions are known"
    for report, is_said in ((alone, True), (later, False), (findings(unreported), False)):
        print_findings(report, "workers.yaml")
        assert (said in capsys.readouterr().out) == is_said
        assert (said in page(report, "workers.yaml")) == is_said


@pytest.mark.parametrize(
    ("top", "distinct", "spread"),
    [
        ((("a", 50), ("b", 1)), 51, "one"),
        ((("a", 45), ("b", 40)), 17, "few"),
        ((("a", 2), ("b", 2)), 96, "many"),
        ((("a", 40), ("b", 35), ("c", 25)), 3, "few"),
        (tuple((key, 10) for key in "abcdefghij"), 10, "few"),
    ],
)
def test_keys_are_reported_as_one_few_or_many(
    top: tuple[tuple[str, int], ...], distinct: int, spread: str
) -> None:
    assert KeySpread(distinct=distinct, count=100, without=0, top=top).spread == spread
    assert KeySpread(distinct=1, count=2, without=0, top=(("a", 2),)).spread == "unknown"


def test_secrets_of_the_configuration_are_taken_out() -> None:
    one = cause(error_message="password hunter2", examples=(example(key="hunter2"),))
    clean = without_secrets(findings(one), Mask(["hunter2"]))
    assert "hunter2" not in page(clean, "workers.yaml")
    assert clean.causes[0].error_message == "password ***"


def test_a_page_replaces_a_page_and_nothing_else(tmp_path: Path, golden: Golden) -> None:
    output = tmp_path / "report.html"
    check_output(output)
    write(page(findings(cause()), "workers.yaml"), output)
    check_output(output)
    other = tmp_path / "workers.yaml"
    other.write_text("kafka: {}")
    with golden.raises(UsageError):
        check_output(other)
    with golden.raises(UsageError):
        check_output(tmp_path / "missing" / "report.html")
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_a_page_without_jinja2_says_what_to_install(tmp_path: Path) -> None:
    check = (
        "import pathlib, sys\n"
        "sys.modules['jinja2'] = None\n"
        "from window_consumer.dlq.commands.report import check_output\n"
        "from window_consumer.model.errors import UsageError\n"
        "check_output(None)\n"
        "try: check_output(pathlib.Path(sys.argv[1]))\n"
        "except UsageError as error: print(error)\n"
    )
    words = [sys.executable, "-c", check, str(tmp_path / "report.html")]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert "window-consumer[spark]" in ended.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dlq: {patterns: ['.+-dlt']}", "does not begin with ^"),
        ("dlq: {topics: [a/b]}", "contains '/'"),
        ("dlq: {patterns: []}", "write one of the two"),
        ("dlq: {keys: hmac}", "dlq.key_secret"),
        ("dlq: {kays: raw}", "keys"),
        ("mask: [{topics: [orders]}]", "hides nothing"),
    ],
)
def test_a_wrong_configuration_is_reported_with_its_place(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"kafka: {{bootstrap.servers: 'h:1'}}\ndirectory: lake\n{text}\n")
    with pytest.raises(SystemExit) as ended:
        main(["dlq", "report", "-c", str(file)])
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert said in error
    assert "pipeline.yaml" in error


def test_report_is_listed_among_the_commands() -> None:
    assert "report" in CliRunner().invoke(dlq_group, ["--help"]).output
