"""The body of a response: records to produce, and the failed records of a batch.

It is a JSON object: `{"produce": [...], "failed": [...]}`, see docs/push.md. Other bodies and other
keys are ignored.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from window_consumer.model.errors import Fatal
from window_consumer.model.produce import Produce
from window_consumer.push.answer import Answer, PushFailedError

_OF_RECORD: Final = frozenset(
    {"topic", "key", "key_base64", "value", "value_base64", "headers", "partition", "id"}
)
_OF_FAILURE: Final = frozenset({"index", "error", "fatal"})
_SHOWN: Final = 200


class InvalidAnswerError(PushFailedError):
    """A successful response asks for something that cannot be done."""


class FailedInBatchError(PushFailedError):
    """The service reported a record of a batch as failed."""


class FatalInBatch(Fatal):
    """The service reported that it will never accept a record of a batch."""


@frozen
class ResultReader:
    """Reads the bodies of one service's responses."""

    where: str
    """The URL to show in messages."""
    may_produce: frozenset[str]
    """The topics that responses may name."""

    def produced(self, body: Mapping[str, Any]) -> list[Produce]:
        """Return the records to produce; raises InvalidAnswerError."""
        found = body.get("produce") if self.may_produce else None
        if found is None:
            return []
        if not isinstance(found, list):
            raise self._invalid("produce is not a list")
        return [self._record(each) for each in found]

    def failed(self, body: Mapping[str, Any], records: int) -> dict[int, BaseException]:
        """Return the failures of a batch by index; raises InvalidAnswerError."""
        found = body.get("failed")
        if found is None:
            return {}
        if not isinstance(found, list):
            raise self._invalid("failed is not a list")
        failures: dict[int, BaseException] = {}
        for each in found:
            failure: Any = each if isinstance(each, dict) else {"index": each}
            index = failure.get("index")
            is_one = type(index) is int and 0 <= index < records
            if not is_one or not failure.keys() <= _OF_FAILURE:
                raise self._invalid(f"failed has an entry that names none of the {records} records")
            text = str(failure.get("error") or "no reason given")[:_SHOWN]
            kind = FatalInBatch if failure.get("fatal") else FailedInBatchError
            failures[index] = kind(f"{self.where}: {text}")
        return failures

    def body_of(self, answer: Answer) -> Mapping[str, Any]:
        """Return the object in a JSON response; an empty one for other responses.

        Raises InvalidAnswerError if the response claims to be JSON but is not, or is too long.
        """
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            return {}
        if not answer.is_whole:
            raise self._invalid("it has more than 1 MiB")
        try:
            body = json.loads(answer.body)
        except (ValueError, RecursionError):
            raise self._invalid("it claims to be JSON but is not") from None
        return body if isinstance(body, dict) else {}

    def _record(self, given: Any) -> Produce:
        if not isinstance(given, dict) or not given.keys() <= _OF_RECORD:
            raise self._invalid(f"a record to produce may only have the keys {sorted(_OF_RECORD)}")
        topic = given.get("topic")
        if not isinstance(topic, str) or topic not in self.may_produce:
            shown = f"{topic!r:.100}"
            raise self._invalid(f"it names the topic {shown}, which http.may_produce does not list")
        headers = given.get("headers") or {}
        if not isinstance(headers, dict):
            raise self._invalid("headers of a record to produce are not an object")
        try:
            return Produce(
                topic,
                _bytes(given, "key"),
                _bytes(given, "value"),
                headers=headers,
                partition=given.get("partition"),
                id=given.get("id"),
            )
        except (TypeError, ValueError) as error:
            raise self._invalid(f"a record to produce cannot be written ({error})") from None

    def _invalid(self, why: str) -> InvalidAnswerError:
        return InvalidAnswerError(f"the answer of {self.where} cannot be used: {why}")


def _bytes(given: Mapping[str, Any], name: str) -> bytes | str | None:
    """Return a key or a value: text unchanged, base64 decoded, anything else as JSON."""
    if f"{name}_base64" in given:
        return b64decode(given[f"{name}_base64"], validate=True)
    found = given.get(name)
    return found if found is None or isinstance(found, str) else json.dumps(found)
