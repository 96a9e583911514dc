"""The reference page of the configuration, generated from the configuration's classes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Any, Final

from attrs import Attribute

from window_consumer.config.options import (
    NO_SECTIONS,
    Option,
    Sections,
    options,
    secret_keys,
    subsections,
)
from window_consumer.config.schema import Config
from window_consumer.config.sections.kafka_login import login_rows
from window_consumer.config.sections.kafka_properties import KafkaConfig
from window_consumer.config.sections.mask import MaskRule
from window_consumer.config.sections.worker import WorkerConfig

_INTRODUCTION: Final = """\
# Configuration

This page is generated from the classes in `window_consumer/config`; change it there.

```yaml
{example}```

Every key except `topics` (or `patterns`) and `group` has a default. Arguments of a decorator are
defaults for the worker that runs the handler. The file overrides them, and `--set KEY=VALUE`
overrides the file: mappings are merged, lists and scalars are replaced, and `topics` in one layer
replaces `patterns` in another. Keys that are not on this page are refused.

Editors complete and check a file that begins with `# yaml-language-server: $schema=ADDRESS`. The
address is that of [schema.json](schema.json) beside this page, or a file: `window-consumer schema`
prints that of the installed version.
"""

_WRITING: Final = """\
## How values are written

| | |
|---|---|
| durations | `200ms`, `1.5s`, `1m`, `2h`, `14d`; `0` needs no unit |
| sizes | `1024B`, `500KiB`, `64MiB`, `1GiB` (powers of 1024), `10MB`, `1GB` (powers of 1000) |
| ranges | two durations, `200ms..5s` |
| percentages | `50%`, `12.5%` |
| `${NAME}` | the environment variable, which must be set |
| `${NAME:-default}` | the default if the variable is unset or empty |
| `${file:/run/secrets/x}` | the file's content without its last newline; always a secret |
| `$$` | a dollar sign |

References are replaced in scalars, never in YAML text, so a replacement cannot become a list or a
mapping. A value that is a single reference is a number, or true or false, if the key wants one, and
text otherwise. Put quotes around it inside `{ }` and `[ ]`. Relative file names start at the
directory of the configuration file.

`--set` takes a path with dots: `--set workers.charge.concurrency=8`. Below `kafka` the rest of the
path is one property: `--set kafka.bootstrap.servers=h:1`. With `consumer.`, `producer.` or `admin.`
before it, it belongs to that sub-map: `--set workers.charge.kafka.consumer.fetch.wait.max.ms=5`. A
value that begins with `[`, `{`, `"` or `'` is read as YAML; any other is used unchanged.

Secrets are printed as `***`: values from `${file:...}`, those of Kafka properties with a secret's
name (password, secret, token, private key ...), `kafka.login.client_secret`{more}.
"""

_KAFKA: Final = """\
{meaning}

Values are text, numbers, true or false. A worker's own properties override those at the top.
Properties that only consumers have do not reach producers and admin clients.
"""


def example() -> str:
    """Return the annotated example, a file that loads."""
    return resources.files(__package__).joinpath("example.yaml").read_text(encoding="utf-8")


def config_page(sections: Sections = NO_SECTIONS) -> str:
    """Return the reference page, in Markdown; ``sections`` are those of features."""
    secrets = "".join(f", `{'.'.join(path)}`" for path in secret_keys(sections))
    parts = [_INTRODUCTION.format(example=example()), _WRITING.replace("{more}", secrets)]
    parts.extend(_section(*section, sections) for section in _sections(sections))
    return "\n".join(parts)


def _sections(sections: Sections) -> Iterator[tuple[str, str, type]]:
    """Yield path, title and class of each section."""
    with_names = {each.name for each in sections.file if each.has_names}
    for name, kind in subsections(Config, sections).items():
        if kind is KafkaConfig:
            yield name, "`kafka`, and `kafka` in a worker", kind
        elif name == "workers":
            yield from _with_subsections("workers.NAME", WorkerConfig, sections)
        elif name == "mask":
            yield "mask[]", "`mask`, a list of rules", MaskRule
        elif kind is not None:
            path = f"{name}.NAME" if name in with_names else name
            yield from _with_subsections(path, kind, sections)


def _with_subsections(
    path: str, section: type, sections: Sections
) -> Iterator[tuple[str, str, type]]:
    yield path, f"`{path}`", section
    for name, kind in subsections(section, sections).items():
        if kind is not None and kind is not KafkaConfig:
            yield from _with_subsections(f"{path}.{name}", kind, sections)


def _section(path: str, title: str, section: type, sections: Sections) -> str:
    known = options(section, sections)
    if section is KafkaConfig:
        meaning = options(Config)["kafka"][1].meaning
        rows = [f"| `{path}.{key}` | {option.meaning} |" for key, (_, option) in known.items()]
        table = ["| key | meaning |", "|---|---|", *rows]
        table += [f"| `{path}.login.{key}` | {of}: {text} |" for key, of, text in login_rows()]
        return f"## {title}\n\n{_KAFKA.format(meaning=meaning)}\n" + "\n".join(table) + "\n"
    table = [
        "| key | type | default | range | meaning | why this default |",
        "|---|---|---|---|---|---|",
        *(_row(f"{path}.{key}", *found) for key, found in known.items()),
    ]
    return f"## {title}\n\n" + "\n".join(table) + "\n"


def _row(path: str, attribute: Attribute[Any], option: Option) -> str:
    if option.kind is None:
        cells = [f"`{path}`", "section", "", "", option.meaning, ""]
    else:
        default = option.default or f"`{option.kind.write(attribute.default)}`"
        kind = option.kind
        cells = [f"`{path}`", kind.name, default, kind.limits, option.meaning, option.reason]
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
