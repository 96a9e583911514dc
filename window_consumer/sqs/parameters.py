"""The parameters of a call, checked: their types, SQS's limits, and the entries of a batch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from window_consumer.sqs.errors import SqsError, SqsErrorKind, shown

MOST_ENTRIES: Final = 10
"""The most entries of a batch, and messages of one ReceiveMessage."""

_ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")


@frozen
class CallParameters:
    """The members of a JSON object. A null counts as absent; unknown members are ignored."""

    members: Mapping[str, Any]

    @classmethod
    def parse(cls, body: bytes) -> CallParameters:
        """Read the body of a request; an empty body has no members. Raises SqsError."""
        try:
            found = json.loads(body) if body else {}
        except (ValueError, RecursionError) as error:
            why = "is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise SqsError(SqsErrorKind.MALFORMED, f"the body is not JSON: {why}") from None
        if not isinstance(found, dict):
            raise SqsError(SqsErrorKind.MALFORMED, "the body is not a JSON object")
        return cls(found)

    def text(self, name: str) -> str | None:
        """Return a text; None if it is absent."""
        text: str | None = self._checked(name, str, "a text")
        return text

    def required(self, name: str) -> str:
        """Return a text that must be present and not empty."""
        text = self.text(name)
        if not text:
            raise SqsError(SqsErrorKind.MISSING, f"The request must contain the parameter {name}.")
        return text

    def whole_number(self, name: str, most: int, least: int = 0) -> int | None:
        """Return a whole number within its limits; None if it is absent."""
        number = self.members.get(name)
        if number is None:
            return None
        if isinstance(number, bool) or not isinstance(number, int):
            raise _of_wrong_type(name, "a whole number", number)
        if not least <= number <= most:
            message = (
                f"Value {shown(number)} for parameter {name} is invalid. Reason: it must be"
                f" between {least} and {most}."
            )
            raise SqsError(SqsErrorKind.INVALID_VALUE, message)
        return number

    def texts(self, name: str) -> Sequence[str]:
        """Return a list of texts, empty if it is absent."""
        found = self._checked(name, list, "a list") or []
        for each in found:
            if not isinstance(each, str):
                raise _of_wrong_type(name, "a list of texts", each)
        return found

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Return a JSON object, empty if it is absent."""
        return self._checked(name, dict, "an object") or {}

    def entries(self) -> Mapping[str, CallParameters]:
        """Return the entries of a batch by their ids, in order: 1 to 10 with distinct ids."""
        found = self._checked("Entries", list, "a list") or []
        if not found:
            message = "There should be at least one entry in the request."
            raise SqsError(SqsErrorKind.EMPTY_BATCH, message)
        if len(found) > MOST_ENTRIES:
            message = f"{len(found)} entries are too many: a batch has up to {MOST_ENTRIES}."
            raise SqsError(SqsErrorKind.LONG_BATCH, message)
        entries: dict[str, CallParameters] = {}
        for each in found:
            if not isinstance(each, dict):
                raise _of_wrong_type("Entries", "a list of objects", each)
            entry = CallParameters(each)
            entry_id = entry.required("Id")
            if _ENTRY_ID.fullmatch(entry_id) is None:
                message = (
                    f"{shown(entry_id)} is no Id: it has 1 to 80 letters, digits, hyphens and"
                    " underscores."
                )
                raise SqsError(SqsErrorKind.INVALID_ID, message)
            if entry_id in entries:
                raise SqsError(SqsErrorKind.REPEATED_ID, f"Id {entry_id} repeated.")
            entries[entry_id] = entry
        return entries

    def _checked(self, name: str, kind: type[Any], what: str) -> Any:
        found = self.members.get(name)
        if found is not None and not isinstance(found, kind):
            raise _of_wrong_type(name, what, found)
        return found


def _of_wrong_type(name: str, what: str, found: object) -> SqsError:
    return SqsError(SqsErrorKind.MALFORMED, f"{name} must be {what}, not {shown(found)}")
