"""Options that the dead-letter commands share: which topics, and which of their records."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from window_consumer.cli.logs import set_up
from window_consumer.cli.options import (
    TextParam,
    features,
    optional_application,
    short_start_timeout,
    topics_named,
    workers_named,
)
from window_consumer.cli.output import application_output, explain
from window_consumer.dlq.conditions import parse_where
from window_consumer.dlq.reader import DeadLetterTopics
from window_consumer.dlq.source import DeadLetterSource
from window_consumer.model.errors import UsageError
from window_consumer.plan.loading import load_app

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_WAIT_S = 10.0
"""How long to wait for Kafka; short, because a user waits."""


_TOPICS = (
    click.option(
        "-c",
        "--config",
        type=click.Path(path_type=Path),
        default=None,
        help="The configuration file. [default: workers.yaml]",
    ),
    click.option(
        "--worker",
        "-w",
        "workers",
        multiple=True,
        metavar="WORKER",
        shell_complete=workers_named,
        help="Only dead letters of this one.",
    ),
    click.option(
        "--topic",
        "topics",
        multiple=True,
        metavar="TOPIC",
        shell_complete=topics_named,
        help="Only this topic: the records' own, or any topic that holds dead letters.",
    ),
    click.option(
        "--bootstrap",
        metavar="HOST:PORT",
        default=None,
        help="Read a --topic of this cluster, without a configuration.",
    ),
    click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key, as for run."
    ),
    short_start_timeout,
)
WHERE = click.option(
    "--where",
    type=TextParam("expression", parse_where),
    default=None,
    metavar="EXPR",
    help="Only those that match a condition, such as \"reason == 'FATAL' and time > ago(2h)\".",
)


def topic_options(command: CommandT) -> CommandT:
    """Add the options that select topics to a command."""
    return optional_application(topic_options_without_app(command))


def topic_options_without_app(command: CommandT) -> CommandT:
    """Add these options to a command that takes the application as an argument."""
    return reduce(lambda inner, option: option(inner), reversed(_TOPICS), features(command))


def source_of(options: dict[str, Any]) -> DeadLetterSource:
    """Return the source that the options select; raise UsageError if they are invalid."""
    topics = options["topics"]
    if options["bootstrap"] is None:
        application = options["application"]
        with application_output():
            app = None if application is None else load_app(application)
        return DeadLetterSource.of_config(
            options["config"] or Path("workers.yaml"),
            app=app,
            workers=options["workers"],
            topics=topics,
            overrides=options["overrides"],
            features=options["features"],
        )
    for name in ("config", "workers", "overrides"):
        if options[name]:
            raise UsageError(
                "--bootstrap reads without a configuration: leave it out, or leave out --config,"
                " --worker and --set"
            )
    if not topics:
        raise UsageError("--bootstrap needs --topic: the topic that holds the dead letters")
    return DeadLetterSource.of_address(options["bootstrap"], topics)


def open_dead_letters(
    options: dict[str, Any], action: Callable[[DeadLetterSource, DeadLetterTopics], int]
) -> int:
    """Open the selected dead letters, run the action, and return the exit code.

    Error messages never contain secrets of the configuration.
    """
    formatter = set_up("text", "warning")
    source = source_of(options)
    formatter.mask = source.mask
    try:
        with DeadLetterTopics(source, timeout_s=options["start_timeout"]) as topics:
            return action(source, topics)
    except Exception as error:
        return explain(error, source.mask)
