"""The section `workers.X.http`: where records are posted, and what the responses mean."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal

from attrs import field, frozen

from window_consumer.config import kinds, urls
from window_consumer.config.kinds import REFERENCE, ValueKind
from window_consumer.config.options import Section, about
from window_consumer.config.problems import InvalidError, Problem
from window_consumer.config.sections.guards import StallConfig
from window_consumer.config.sections.worker import WorkerConfig
from window_consumer.push.request_headers import OURS, TOKEN
from window_consumer.push.signature import SignConfig, wrong_secrets

_HOUR_S: Final = 3600.0
_GIVING_UP_S: Final = 10.0
"""Far longer than a loop needs to end a request."""
_FATAL: Final = (400, 413, 415, 422)
_LOGIN: Final = "headers: {Authorization: ...}"

Proxy = bool | str
"""Whether the proxies of the environment are used, or the URL of a proxy."""


def _proxy_kind() -> ValueKind:
    of_environment = kinds.boolean()
    url = urls.url("true, false, or the URL of a proxy", _LOGIN)

    def read(raw: Any) -> Proxy:
        try:
            found: bool = of_environment.read(raw)
        except InvalidError:
            proxy: str = url.read(raw)
            return proxy
        return found

    def write(value: Proxy) -> str:
        return value if isinstance(value, str) else of_environment.write(value)

    schema = {"anyOf": [{"type": "boolean"}, url.schema, REFERENCE]}
    return ValueKind("boolean or URL", url.expected, read, write, schema, url.expected)


def _headers_kind() -> ValueKind:
    expected = "a mapping of header names to texts, as in {Authorization: 'Bearer ${TOKEN}'}"

    def read(raw: Any) -> Mapping[str, str]:
        if not isinstance(raw, dict):
            raise InvalidError(Problem((), f"is not {expected}"))
        problems = [
            Problem((name,), wrong)
            for name, value in raw.items()
            if (wrong := _wrong_header(name, value)) is not None
        ]
        if problems:
            raise InvalidError(*problems)
        return {name: str(value) for name, value in raw.items()}

    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    return ValueKind("mapping of texts", expected, read, lambda _: "{}", schema, expected)


def _wrong_header(name: object, value: object) -> str | None:
    """Return the problem of a header, without its value."""
    if not isinstance(name, str) or not TOKEN.fullmatch(name):
        return "is not the name of a header"
    if OURS.match(name):
        return "is a header that the worker sets itself: choose another name"
    if not isinstance(value, str):
        return "has a value that is not text: write it in quotes"
    if not value.isascii() or not value.isprintable():
        return "has a value with characters that are not printable ASCII"
    return None


def _statuses(lower: int) -> ValueKind:
    return kinds.list_of(kinds.whole_number(lower, 599), "statuses", may_be_empty=True)


@frozen(kw_only=True)
class HttpConfig:
    """Records are posted to a URL, which is the handler of the worker."""

    url: str | None = field(
        default=None,
        metadata=about(
            "The URL that each record is posted to. The answer's status decides what happens to"
            " it.",
            kind=urls.url("a URL such as https://orders.internal/events", _LOGIN),
            default="none: required in a section http",
        ),
    )
    timeout: float = field(
        default=30.0,
        metadata=about(
            "How long a request may take, from connecting to the end of the answer.",
            kind=kinds.duration(0.1, _HOUR_S),
            reason="longer than healthy services take",
        ),
    )
    format: Literal["raw", "cloudevents"] = field(
        default="raw",
        metadata=about(
            "raw: the body is the record's value. cloudevents: the same, with the headers of "
            "CloudEvents in binary mode. A batch is a JSON array of either.",
            kind=kinds.choice("raw", "cloudevents"),
            reason="services need no library",
        ),
    )
    sign: SignConfig = field(
        factory=SignConfig,
        metadata=about("How requests are signed, so that services know who sent them."),
    )
    may_produce: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "The topics that the body of an answer may produce records to.",
            kind=kinds.list_of(kinds.kafka_name("topic"), "topic names"),
            default="none: answers produce nothing",
        ),
    )
    headers: Mapping[str, str] = field(
        factory=dict,
        metadata=about(
            "Additional headers of each request, such as Authorization. Their values are secrets.",
            kind=_headers_kind(),
            default="none",
            secret=True,
        ),
    )
    skip_status: tuple[int, ...] = field(
        default=(),
        metadata=about(
            "Statuses with which the record is finished as skipped.", kind=_statuses(200)
        ),
    )
    fatal_status: tuple[int, ...] = field(
        default=_FATAL,
        metadata=about(
            "Statuses with which the record becomes a dead letter at once. All others except 2xx "
            "are failures that the breaker counts.",
            kind=_statuses(300),
            reason="these mean that the record is wrong; 401, 403 and 404 mean that the service is",
        ),
    )
    proxy: Proxy = field(
        default=False,
        metadata=about(
            "The URL of a proxy; true uses those of the environment (HTTPS_PROXY, NO_PROXY).",
            kind=_proxy_kind(),
            reason="services are usually internal, and an environment variable should not"
            " redirect records",
        ),
    )


def conflicts(section: HttpConfig, given: Collection[str]) -> Iterator[Problem]:
    """Yield problems between keys that are each valid alone."""
    signing = given["sign"] if isinstance(given, dict) and "sign" in given else None
    if signing is not None:
        yield from (each.below(("sign",)) for each in wrong_secrets(section.sign, signing))
    for index, status in enumerate(section.skip_status):
        if status in section.fatal_status:
            message = f"{status} is in fatal_status, too: keep it in one of the two lists"
            yield Problem(("skip_status", index), message)


def _decides(section: HttpConfig) -> Mapping[str, Any]:
    """Return when a call counts as stalled: after its request has timed out."""
    if section.url is None:
        return {}
    return {"stall": StallConfig(after=section.timeout + _GIVING_UP_S)}


def _relations(worker: WorkerConfig, given: Collection[str]) -> Iterator[Problem]:
    if SECTION.name in given and worker.section(HttpConfig).url is None:
        message = "is missing: a URL such as https://orders.internal/events"
        yield Problem((SECTION.name, "url"), message)
    if worker.handled_by == SECTION.name and "stall" in given:
        yield Problem(("stall",), "has no effect with http, whose timeout ends calls: remove stall")


SECTION: Final = Section(
    "http",
    HttpConfig,
    "Posts each record to a URL instead of calling a handler.",
    conflicts,
    handles=lambda section: section.url is not None,
    decides=_decides,
    relations_in_worker=_relations,
)
