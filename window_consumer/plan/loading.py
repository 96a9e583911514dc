"""Loading the user's application, ``module:app``, and its configuration."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from window_consumer.config import LoadedConfig, load
from window_consumer.model.errors import ConfigError, UsageError
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.feature_list import FeatureList

_MISSING = ": is missing"
_LIBRARIES = ("<frozen ", *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
"""How the files of modules begin that users have not written."""


def search_current_directory() -> None:
    """Let imports find modules in the current directory, as ``python -m`` does."""
    if "" not in sys.path and os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path has strings
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as above


def load_app(spec: str) -> AppDefinition:
    """Return the App at ``module:attribute``; raises UsageError with the reason and place.

    Searches the current directory first. ``:app`` is optional.
    """
    module_name, _, attribute = spec.partition(":")
    attribute = attribute or "app"
    if not module_name or "/" in module_name or module_name.endswith(".py"):
        raise UsageError(
            f"{spec!r} is not an application: write MODULE:APP with the module's dotted name, as in"
            " shop:app"
        )
    search_current_directory()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.split(".")[0] == error.name.split(".")[0]:
            raise UsageError(
                f"{spec}: there is no module {error.name!r} in {os.getcwd()} or the rest of"  # noqa: PTH109 - as above
                " sys.path"
            ) from error
        raise UsageError(_broken(spec, error)) from error
    except UsageError as error:
        raise UsageError(f"{spec}: {error}") from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UsageError(_broken(spec, error)) from error
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, AppDefinition):
        apps = sorted(
            name for name, value in vars(module).items() if isinstance(value, AppDefinition)
        )
        there = f"it has {', '.join(apps)}" if apps else "it has none"
        raise UsageError(f"{spec}: {module_name} has no App named {attribute!r}; {there}")
    return found


def load_app_if_named(spec: str | None, file: Path, features: FeatureList) -> AppDefinition:
    """Return the named App, or without a name an empty App named after the file.

    An empty App is enough if all workers have a section as their handler. Raises UsageError.
    """
    return UnnamedApp(file.stem, features=features) if spec is None else load_app(spec)


class UnnamedApp(AppDefinition):
    """The application if none is named: it has no handlers."""

    def plan(self, *given: Any, **more: Any) -> AppPlan:
        """See ``AppDefinition``; errors about missing handlers ask for an application."""
        try:
            return super().plan(*given, **more)
        except ConfigError as error:
            if _MISSING not in str(error):
                raise
            hint = "(name the application, MODULE:APP, unless each worker's handler is in the file)"
            raise ConfigError(f"{error}\n{hint}", error.wrong) from error


def load_without_handlers(
    file: Path, app: AppDefinition | None, overrides: Sequence[str], features: FeatureList
) -> LoadedConfig:
    """Load a configuration for a command that calls no handler, with or without its application.

    Raises ConfigError, which asks for the application if that could supply a missing value.
    """
    defaults = {} if app is None else {name: each.defaults for name, each in app.handlers.items()}
    try:
        return load(file, defaults, overrides, without_handlers=True, sections=features.sections)
    except ConfigError as error:
        if app is not None or _MISSING not in str(error):
            raise
        hint = "(if decorators supply it, name the application: MODULE:APP, or --app MODULE:APP)"
        raise ConfigError(f"{error}\n{hint}") from error


def _broken(spec: str, error: BaseException) -> str:
    """Describe where in the user's code the import failed."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [f for f in frames if "importlib" not in f.filename and f.filename != __file__]
    # The error may be raised in a library, as for os.environ["MISSING"]; users look for their line.
    own = [f for f in outside if not f.filename.startswith(_LIBRARIES)] or outside
    place = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
    if isinstance(error, SyntaxError) and error.filename:
        place = f" at {error.filename}:{error.lineno}"
    advice = ""
    if isinstance(error, ModuleNotFoundError) and error.name == "psycopg2":
        advice = ": write postgresql+psycopg://... for the driver of the extra sql, or install it"
    return f"{spec}: the module cannot be imported{place}: {type(error).__name__}: {error}{advice}"
