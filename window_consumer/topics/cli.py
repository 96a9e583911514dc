"""``window-consumer topics plan``: all ladder topics with their settings, and the ACLs."""

from __future__ import annotations

import re
from typing import Any

import click

from window_consumer.cli import options as common
from window_consumer.cli.logs import set_up
from window_consumer.cli.output import OK, explain
from window_consumer.config import Mask
from window_consumer.model.errors import UsageError
from window_consumer.plan.loading import load_app
from window_consumer.topics.cluster_plan import ClusterPlan
from window_consumer.topics.formats.kafka_scripts import as_shell
from window_consumer.topics.formats.strimzi import as_strimzi
from window_consumer.topics.formats.terraform import as_terraform
from window_consumer.topics.plan import Planner
from window_consumer.topics.source_models import AssumedSizes

_WAIT_S = 10.0
"""Short, because a person waits for the answer."""

_MOST_REPLICAS = 32_767
"""Kafka's protocol has 16 bits for it."""


def _principal(text: str) -> str:
    """Return a principal as Kafka writes it."""
    if not re.fullmatch(r"[A-Za-z]+:[^\x00-\x1f\x7f]+", text):
        raise ValueError(f"{text!r} is not a principal: include its kind, as in User:shop")
    return text


@click.command("plan")
@common.optional_application
@common.config
@click.option(
    "--format",
    "form",
    type=click.Choice(["cli", "terraform", "strimzi"]),
    default="cli",
    show_default=True,
    help="Kafka's own scripts, the provider Mongey/kafka, or KafkaTopic and KafkaUser.",
)
@common.only
@common.overrides
@click.option(
    "--principal",
    type=common.TextParam("principal", _principal),
    metavar="User:NAME",
    help="The workers' Kafka principal; without it, the output has a placeholder.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Partitions of the source topics, instead of asking the cluster.",
)
@click.option(
    "--replication-factor",
    "replication",
    type=click.IntRange(1, _MOST_REPLICAS),
    metavar="N",
    help="Replicas of the source topics, instead of asking the cluster.",
)
@click.option(
    "--strimzi-cluster",
    default="my-cluster",
    show_default=True,
    metavar="NAME",
    help="The Kafka resource that the Strimzi documents refer to.",
)
@common.short_start_timeout
@common.features
def plan_command(**options: Any) -> int:
    """Print the topics and ACLs that the workers need; change nothing.

    Topics with copies have as many partitions and replicas as their source. These numbers come from
    the cluster, or from --partitions and --replication-factor. The application is needed if its
    decorators give what the configuration lacks: topics, groups, conditions, tokens.
    """
    formatter = set_up("text", "warning")
    planner = _planner(options)
    formatter.mask = Mask(planner.loaded.secrets)
    try:
        plans = planner.plans()
        click.echo(_written(plans, options).rstrip())
    except Exception as error:
        return explain(error, formatter.mask)
    return OK


def _planner(options: dict[str, Any]) -> Planner:
    more = {
        "only": options["only"],
        "overrides": options["overrides"],
        "sizes": _sizes(options["partitions"], options["replication"]),
        "timeout_s": options["start_timeout"],
    }
    if options["application"]:
        app = load_app(options["application"])
        return Planner.of_application(app, options["config"], **more)
    return Planner.of_config(options["config"], options["features"], **more)


def _sizes(partitions: int | None, replication: int | None) -> AssumedSizes | None:
    if partitions is None and replication is None:
        return None
    if partitions is None or replication is None:
        raise UsageError(
            "--partitions and --replication-factor belong together: give both, or neither to ask"
            " the cluster"
        )
    return AssumedSizes(partitions, replication)


def _of_workers(plans: list[ClusterPlan]) -> list[ClusterPlan]:
    """Omit a cluster with only telemetry, with a note: ``--only`` cannot choose it."""
    chosen = [plan for plan in plans if not plan.is_for_telemetry]
    for each in plans:
        if each.is_for_telemetry:
            names = " and ".join(topic.new.name for topic in each.topics)
            chosen[0].notes.append(
                f"{names}, for telemetry, are on another cluster ({each.bootstrap}) and not among"
                " these: --format cli prints them."
            )
    return chosen


def _written(plans: list[ClusterPlan], options: dict[str, Any]) -> str:
    principal: str | None = options["principal"]
    if options["form"] == "cli":
        return as_shell(plans, principal)
    plans = _of_workers(plans)
    if len(plans) > 1:
        each = "; ".join(f"{plan.bootstrap}: {', '.join(plan.workers)}" for plan in plans)
        raise UsageError(
            f"--format {options['form']} is for one cluster, but the workers use several ({each}):"
            " choose the workers of one with --only"
        )
    if options["form"] == "terraform":
        return as_terraform(plans[0], principal)
    return as_strimzi(plans[0], principal, options["strimzi_cluster"])


@click.group("topics")
def topics_group() -> None:
    """Topics and permissions that the workers of a configuration need."""


topics_group.add_command(plan_command)
