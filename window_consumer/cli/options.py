"""Options, arguments and lazily imported groups that commands share.

Lazy, because imports take most of a start's time and commands need different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

import click

from window_consumer.config.units import UnitError, parse_duration
from window_consumer.plan.feature_list import FeatureList

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
T = TypeVar("T")


class TextParam(click.ParamType, Generic[T]):  # type: ignore[type-arg]  # generic since click 8.4
    """A text that ``read`` converts; ValueError carries the problem."""

    def __init__(self, name: str, read: Callable[[str], T]):
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Return the value; a default may already be converted."""
        if not isinstance(value, str):
            known: T = value
            return known
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except UnitError as error:
        raise ValueError(f"{text!r} {error}" + (f"; {error.hint}" if error.hint else "")) from None


DURATION: Final = TextParam("duration", _duration)
"""A duration with its unit, as in the configuration; in seconds."""


def application(command: CommandT) -> CommandT:
    """Add the application to a command that needs it: MODULE:APP, or --app MODULE:APP."""
    return _naming_application(command, is_required=True)


def optional_application(command: CommandT) -> CommandT:
    """Add the application to a command that can work without one; None if it is not named."""
    return _naming_application(command, is_required=False)


def _naming_application(command: CommandT, *, is_required: bool) -> CommandT:
    """Give a command the parameter ``application``, from the argument or from its alias."""

    @wraps(command)
    def named(*given: Any, application: str | None, app_alias: str | None, **more: Any) -> Any:
        if application is not None and app_alias is not None and application != app_alias:
            raise click.UsageError(f"{application} and --app {app_alias} are two applications.")
        chosen = application if application is not None else app_alias
        if chosen is None and is_required:
            raise click.UsageError("Missing argument 'MODULE:APP'.")
        return command(*given, application=chosen, **more)

    alias = click.option(
        "--app",
        "app_alias",
        metavar="MODULE:APP",
        default=None,
        help="Another way to name the application.",
    )
    metavar = "MODULE:APP" if is_required else "[MODULE:APP]"
    argument = click.argument("application", metavar=metavar, required=False)
    return cast("CommandT", argument(alias(named)))


def workers_named(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the workers of the configuration whose names begin with the text."""
    return _names_beginning(_configured_workers(ctx), incomplete)


def topics_named(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics of the configuration's workers whose names begin with the text."""
    found: list[str] = []
    for worker in _configured_workers(ctx).values():
        topics = worker.get("topics") if isinstance(worker, Mapping) else None
        found += [topics] if isinstance(topics, str) else topics or []
    return _names_beginning(found, incomplete)


def _names_beginning(names: Iterable[object], incomplete: str) -> list[str]:
    found = dict.fromkeys(name for name in names if isinstance(name, str))
    return [name for name in found if name.startswith(incomplete)]


def _configured_workers(ctx: click.Context) -> Mapping[Any, Any]:
    """Read the configuration without checks, for speed; a broken one has no workers."""
    import yaml  # noqa: PLC0415 - only a completion needs it here

    given = ctx.params.get("config")
    files = [given] if isinstance(given, Path) else map(Path, ("workers.yaml", "workers.yml"))
    for file in files:
        with suppress(OSError, ValueError, yaml.YAMLError):
            read = yaml.safe_load(file.read_text("utf-8"))
            workers = read.get("workers") if isinstance(read, Mapping) else None
            return workers if isinstance(workers, Mapping) else {}
    return {}


config = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    default=Path("workers.yaml"),
    show_default=True,
    help="The configuration file.",
)
pipeline_config = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    default=Path("pipeline.yaml"),
    show_default=True,
    help="The configuration of the pipeline.",
)
only = click.option(
    "--only",
    multiple=True,
    metavar="WORKER",
    shell_complete=workers_named,
    help="Only this worker; may be repeated.",
)
overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key, as in workers.charge.concurrency=8; may be repeated.",
)
start_timeout = click.option(
    "--start-timeout",
    type=DURATION,
    default=None,
    metavar="DURATION",
    help="Give up when no broker answers for this long (exit code 1). [default: never]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
short_start_timeout = click.option(
    "--start-timeout",
    type=DURATION,
    default=10.0,
    metavar="DURATION",
    help="Give up if no broker responds for this long (exit code 1). [default: 10s]",
)


def feature_list() -> FeatureList:
    """Return the list of features from the command's context, where ``main`` puts it."""
    found = click.get_current_context().find_object(FeatureList)
    assert found is not None
    return found


def features(command: CommandT) -> CommandT:
    """Give a command the list of features, as ``features``."""

    @wraps(command)
    def listing(*given: Any, **more: Any) -> Any:
        return command(*given, features=feature_list(), **more)

    return cast("CommandT", listing)


def since_1970(text: str, units_per_s: int) -> int:
    """Return an ISO 8601 time in units since 1970; UTC if it names no zone.

    Raises ValueError, and OverflowError for a time outside the range of datetime.
    """
    time = datetime.fromisoformat(text)
    time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    return round(time.timestamp() * units_per_s)


def time_param(units_per_s: int) -> TextParam[int]:
    """Return the type of an ISO 8601 time, in units since 1970; UTC if it names no zone."""

    def read(text: str) -> int:
        try:
            return since_1970(text, units_per_s)
        except (ValueError, OverflowError):
            now = datetime.now().astimezone().replace(microsecond=0)
            raise ValueError(
                f"{text!r} is not a time: write it as 2026-01-31, 2026-01-31T12:00 (UTC), or"
                f" {now.isoformat()}"
            ) from None

    return TextParam("time", read)


class LazyGroup(click.Group):
    """A group whose commands are named by ``module:attribute``, in the order of their list."""

    def __init__(self, *given: Any, lazy: Mapping[str, str], **more: Any):
        super().__init__(*given, **more)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        """Return all names."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's interface
        """Import a command; return None if there is none of that name."""
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command
