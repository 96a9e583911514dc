"""``window-consumer topics``: the topics that workers write to, for those who make them by hand."""

from __future__ import annotations

import click

from window_consumer.cli.topics.plan_command import plan_command


@click.group("topics")
def topics_group() -> None:
    """Topics and permissions that the workers of a configuration need."""


topics_group.add_command(plan_command)
