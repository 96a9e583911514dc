"""The delay service as a feature: its section, its worker, and what that needs on the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar

from attrs import evolve

from window_consumer.config import Config, format_duration
from window_consumer.config.options import Section
from window_consumer.delay.config import HANDLER, WORKER, DelayConfig, conflicts, workers
from window_consumer.delay.refusing_targets import RefusingTargets
from window_consumer.delay.waiting import LONG_LEVELS, MANY_HOPS, DelayRule, Levels
from window_consumer.delay.wish import Targets, delivered
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.feature import AclRule, Feature
from window_consumer.plan.handlers import HandlerSpec
from window_consumer.plan.start_timeout import LOGGER


class DelayFeature(Feature):
    """The delay service."""

    name = "delay"
    section = Section(
        "delay",
        DelayConfig,
        "The delay service: records that are delivered to their topic at a time.",
        conflicts,
        workers=workers,
    )
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"delay": "window_consumer.delay.cli:delay_group"}
    )

    def handlers(self, config: Config) -> Mapping[str, HandlerSpec]:
        """Return the handler that delivers records, and the rule that lets them wait."""
        section = config.section(DelayConfig)
        if not section.to:
            return {}
        targets = Targets.of(config)
        spec = HandlerSpec(
            HANDLER,
            lambda record: delivered(record, targets),
            {},
            rule_of=lambda target_of: DelayRule(
                section, targets, target_of, RefusingTargets(_log_refuses, _log_takes)
            ),
        )
        return {HANDLER: spec}

    def warnings(self, plan: AppPlan) -> Iterator[str]:
        """Yield how many levels the longest delay passes if longer levels would save many."""
        section = plan.config.section(DelayConfig)
        hops = Levels.of(section).hops(section.max)
        if not section.to or hops <= MANY_HOPS:
            return
        more = [each for each in LONG_LEVELS if section.levels[-1] < each <= section.max]
        better = Levels.of(evolve(section, levels=(*section.levels, *more))).hops(section.max)
        if better < hops:
            names = ", ".join(map(format_duration, more))
            yield (
                f"delay.max: {format_duration(section.max)} takes {hops} hops through delay.levels;"
                f" with {names} behind them it takes {better}"
            )

    def rights(self, config: Config) -> Iterator[AclRule]:
        """Yield WRITE on the targets, and its levels if its group has another name."""
        section = config.section(DelayConfig)
        for target in section.to:
            name, is_prefix = target.removesuffix("*"), target.endswith("*")
            why = f"{WORKER} delivers to it"
            yield AclRule("topic", name, ("WRITE", "DESCRIBE"), why, is_prefix)
        if section.to and section.group not in {None, section.topic}:
            create = ("CREATE", "ALTER") if config.topics.create else ()
            operations = ("READ", "WRITE", "DESCRIBE", *create)
            why = f"copies of the records of {WORKER}"
            yield AclRule("topic", f"{section.topic}.", operations, why, is_prefix=True)


def _log_refuses(target: str, why: str) -> None:
    LOGGER.warning(
        "%s: %s refuses records (%s); they wait in levels until it takes them",
        WORKER,
        target,
        why,
        extra={"event": LogEvent.DELAY_TARGET_REFUSES, "worker": WORKER, "topic": target},
    )


def _log_takes(target: str) -> None:
    LOGGER.info(
        "%s: %s takes records again",
        WORKER,
        target,
        extra={"event": LogEvent.DELAY_TARGET_TAKES, "worker": WORKER, "topic": target},
    )
