"""The section ``mask``: what to hide of records, by topic and field."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from typing import Final

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.options import about
from window_consumer.config.problems import Problem
from window_consumer.model.field_mask import FieldMask, Part
from window_consumer.model.headers import ORIGINAL_TOPIC
from window_consumer.model.record import Message
from window_consumer.model.record_contents import TOO_LARGE, TOO_MUCH, hide_record, key_text

PARTS: Final[tuple[Part, ...]] = ("key", "value", "headers")

_MOST_JSON: Final = 64 * 1024
"""The most bytes of a key to search for fields."""

_MOST_VALUE: Final = 256 * 1024
"""The most bytes of a value to search for fields that an exception may quote."""

_MOST_LOOKED_INTO: Final = 1024 * 1024
"""The most bytes to search in all values of a batch; this adds milliseconds to a failed call."""

_TOPICS: Final = r"^[a-zA-Z0-9._*-]{1,249}$"


def field_names_kind() -> kinds.ValueKind:
    """Names of fields and headers."""
    return kinds.list_of(
        kinds.text("the name of a field or header, such as iban or x-auth-*"),
        "names of fields and headers",
        may_be_empty=True,
    )


def _wrong_topic(name: str) -> str | None:
    if re.fullmatch(_TOPICS, name):
        return None
    return "is empty or has characters that no topic may have; * matches any text"


@frozen(kw_only=True)
class MaskRule:
    """What is hidden of the records of some topics, wherever people see them."""

    topics: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "The topics of the records; `*` matches any text. Their copies in retry and "
            "dead-letter topics are included.",
            kind=kinds.list_of(
                kinds.text("the name of a topic, such as orders or cards-*", _wrong_topic, _TOPICS),
                "names of topics",
            ),
            default="none: all topics",
        ),
    )
    fields: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "Fields of JSON values and keys, at any depth, and headers. Case does not matter, `*` "
            "matches any text, and `customer.name` is `name` in a `customer`. If any are given, "
            "values other than JSON are hidden completely.",
            kind=field_names_kind(),
            default="none",
        ),
    )
    whole: tuple[Part, ...] = field(
        default=(),
        metadata=about(
            "Parts of the record that are hidden completely.",
            kind=kinds.list_of(kinds.choice(*PARTS), "parts of a record"),
            default="none",
        ),
    )

    def is_for(self, topic: str) -> bool:
        """Return whether the rule applies to a topic's records."""
        return not self.topics or any(_matches(each, topic) for each in self.topics)


def empty_rules(rules: Iterable[MaskRule]) -> Iterator[Problem]:
    """Yield the rules that hide nothing."""
    for index, rule in enumerate(rules):
        if not rule.fields and not rule.whole:
            message = "hides nothing: write fields: [...], or whole: [value] for a part of a record"
            yield Problem(("mask", index), message)


def _topics_of(message: Message) -> Iterator[str]:
    """Yield the topic of a record and, for a copy, the topic that it came from."""
    yield message.topic()
    for name, content in message.headers() or ():
        if name == ORIGINAL_TOPIC and content is not None:
            yield content.decode("utf-8", "replace")


def _matches(pattern: str, topic: str) -> bool:
    return re.match(translate(pattern), topic) is not None


@frozen
class MaskRules:
    """All rules of a configuration. Immutable, for any thread."""

    rules: tuple[MaskRule, ...] = ()

    def loggable_key(self, topics: Iterable[str | None], key: bytes | None) -> bytes | str | None:
        """Return a key as log lines may show it: the key itself, or a text."""
        mask = self.of(topics)
        if key is None or not (mask.hides_fields or mask.hides("key")):
            return key
        masked = key_text(key, mask, _MOST_JSON)
        return key if masked == key.decode("utf-8", "backslashreplace") else masked

    def error_text(self, text: str, messages: Sequence[Message]) -> str:
        """Return an exception's text without the hidden parts of the records of its call.

        If they are too large to search, the text is withheld.
        """
        if not (text and self.rules):
            return text
        mask = self.of({topic for each in messages for topic in _topics_of(each)})
        if not (mask.hides_fields or mask.hides_a_part):
            return text
        left = _MOST_LOOKED_INTO
        for message in messages:
            left -= len(message.value() or b"")
            if left < 0 or not hide_record(message, mask, _MOST_VALUE):
                return f"<not shown: the value is {TOO_LARGE}>"
        return f"<not shown: {TOO_MUCH}>" if mask.is_full else mask.error_text(text)

    def of(self, topics: Iterable[str | None]) -> FieldMask:
        """Return the mask for one record.

        ``topics`` are its current and original topics. If one is unknown (None), every rule
        applies.
        """
        names = set(topics)
        if None in names:
            rules = list(self.rules)
        else:
            rules = [rule for rule in self.rules if any(rule.is_for(str(each)) for each in names)]
        fields = {name: None for rule in rules for name in rule.fields}
        return FieldMask(fields, {part for rule in rules for part in rule.whole})
