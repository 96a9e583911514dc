"""A registry's client: distinguishes missing schemas from outages.

If the registry itself answers that it has no such schema, the record is bad. Everything else (no
answer, a refused login, an error of the server, a page of a proxy) is an outage: the same value can
be read later.
"""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeVar

from confluent_kafka.schema_registry import (
    RegisteredSchema,
    Schema,
    SchemaRegistryClient,
    SchemaRegistryError,
)

from window_consumer.model.errors import WindowConsumerError
from window_consumer.plan.handler_types.decoders import is_about_the_value
from window_consumer.schema_registry.config import SchemaConfig

T = TypeVar("T")

_TYPES: Final = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}
_LOGIN_REFUSED: Final = {401, 403}
_NO_ANSWER_OF_A_REGISTRY: Final = (ValueError, TypeError, LookupError, AttributeError)
"""The client's exceptions for answers with status 200 that are not the expected JSON."""
_MISSING_S: Final = 5.0
"""How long a schema counts as missing; records with its id ask only once in this time."""
_MOST_MISSING: Final = 1000


class RegistryOutageError(WindowConsumerError, ConnectionError):
    """The registry did not return the schema; the value can be read once it does."""


class RegistryClient(SchemaRegistryClient):
    """Fetches schemas from a registry, each once. Any thread may ask.

    Raises RegistryOutageError, or SchemaRegistryError if there is no such schema.
    """

    def __init__(self, config: SchemaConfig):
        super().__init__(_properties(config))
        self._format = config.format
        self.where = config.registry[0]
        self._found: dict[object, Schema] = {}
        self._asking: dict[object, Future[Schema]] = {}
        self._missing: dict[object, tuple[float, SchemaRegistryError]] = {}
        weakref.finalize(self, self._rest_client.session.close)

    def get_schema(self, schema_id: int, *args: Any) -> Schema:
        """Return a schema of this worker's format."""
        ask = super().get_schema
        return self._schema(
            f"schema {schema_id}", (schema_id, *args), lambda: ask(schema_id, *args)
        )

    def get_schema_by_guid(self, guid: str, *args: Any) -> Schema:
        """Return a schema of this worker's format."""
        ask = super().get_schema_by_guid
        return self._schema(f"schema {guid}", (guid, *args), lambda: ask(guid, *args))

    def get_version(
        self,
        subject_name: str,
        version: int | Literal["latest"] = "latest",
        *args: Any,
        **more: Any,
    ) -> RegisteredSchema:
        """Return a schema that another one references."""
        ask = super().get_version
        what = f"version {version} of {subject_name}"
        return self._asked(what, lambda: ask(subject_name, version, *args, **more))

    def latest_of(self, subject: str) -> RegisteredSchema | None:
        """Return the latest schema of a subject, None if there is none."""
        what = f"the latest schema of {subject}"
        try:
            found = self._asked(what, lambda: self.get_latest_version(subject))
        except SchemaRegistryError:
            return None
        if not _is_schema(found.schema):
            raise RegistryOutageError(_no_registry(self.where, what))
        return found

    def is_of_format(self, schema: Schema) -> bool:
        """Return whether the worker can read values of this schema."""
        return self._format is not None and schema.schema_type == _TYPES[self._format]

    def _schema(self, what: str, key: object, ask: Callable[[], Schema]) -> Schema:
        found = self._found.get(key)
        return self._fetched_once(what, key, ask) if found is None else found

    def _fetched_once(self, what: str, key: object, ask: Callable[[], Schema]) -> Schema:
        """Return a new schema; threads that ask for it meanwhile get the same answer."""
        mine: Future[Schema] = Future()
        asked = self._asking.setdefault(key, mine)
        if asked is not mine:
            return _answer_of(asked)
        try:
            found = self._found.get(key) or self._fetched(what, key, ask)
            self._found[key] = found
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(found)
            return found
        finally:
            del self._asking[key]

    def _fetched(self, what: str, key: object, ask: Callable[[], Schema]) -> Schema:
        self._refuse_missing(key)
        try:
            found = self._asked(what, ask)
        except SchemaRegistryError as error:
            self._remember_missing(key, error)
            raise
        self._refuse_unusable(what, found)
        return found

    def _refuse_unusable(self, what: str, schema: Schema) -> None:
        is_schema = _is_schema(schema)
        if is_schema and self.is_of_format(schema):
            return
        self.clear_caches()  # type: ignore[no-untyped-call] # cached by the client
        if not is_schema:
            raise RegistryOutageError(_no_registry(self.where, what))
        raise RegistryOutageError(
            f"{self.where}: {what} is of type {schema.schema_type}, but the worker's schema.format"
            f" is {self._format}: correct the key, or use another worker for such records"
        )

    def _refuse_missing(self, key: object) -> None:
        until, error = self._missing.get(key, (0.0, None))
        if error is not None and time.monotonic() < until:
            raise _again(error)

    def _remember_missing(self, key: object, error: SchemaRegistryError) -> None:
        if len(self._missing) >= _MOST_MISSING:
            self._missing.clear()
        self._missing[key] = time.monotonic() + _MISSING_S, error

    def _asked(self, what: str, ask: Callable[[], T]) -> T:
        with _outages(self.where, what):
            return ask()


def _answer_of(asked: Future[Schema]) -> Schema:
    """Return the schema that another thread is requesting, or raise its exception."""
    try:
        return asked.result()
    except SchemaRegistryError as error:
        raise _again(error) from None
    except RegistryOutageError as error:
        raise RegistryOutageError(str(error)) from None


def _again(error: SchemaRegistryError) -> SchemaRegistryError:
    """Return a copy of the error for another thread, because raising adds to the traceback."""
    return SchemaRegistryError(error.http_status_code, error.error_code, error.error_message)


@contextmanager
def _outages(where: str, what: str) -> Iterator[None]:
    """Raise RegistryOutageError for every error that is not about a schema."""
    try:
        yield
    except SchemaRegistryError as error:
        if is_about_the_value(error):
            raise
        advice = ""
        if error.http_status_code in _LOGIN_REFUSED:
            advice = ": check schema.user and schema.password"
        elif error.http_status_code == 404:
            raise RegistryOutageError(_no_registry(where, what)) from error
        raise RegistryOutageError(
            f"{where} answered {error.http_status_code} when asked for {what}{advice}"
        ) from error
    except _NO_ANSWER_OF_A_REGISTRY as error:
        raise RegistryOutageError(_no_registry(where, what)) from error
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise RegistryOutageError(
            f"{where} did not answer when asked for {what} ({reason}): check that it runs"
        ) from error


def _is_schema(schema: Schema) -> bool:
    """Return whether an answer seems to have a schema, by its text."""
    text: object = schema.schema_str
    if not text or not isinstance(text, str):
        return False
    if schema.schema_type == _TYPES["protobuf"]:
        return True
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _no_registry(where: str, what: str) -> str:
    return f"{where} does not answer like a registry when asked for {what}: check schema.registry"


def _properties(config: SchemaConfig) -> dict[str, Any]:
    """Return the properties of Confluent's client.

    It does not retry by itself: the worker retries the record, and its breaker counts.
    """
    ssl = config.ssl
    given: dict[str, Any] = {
        "basic.auth.user.info": None if config.user is None else f"{config.user}:{config.password}",
        "ssl.ca.location": ssl.ca,
        "ssl.certificate.location": ssl.certificate,
        "ssl.key.location": ssl.key,
        "ssl.key.password": ssl.key_password,
    }
    return {
        "url": ",".join(config.registry),
        "timeout": config.timeout,
        "max.retries": 0,
        **{name: value for name, value in given.items() if value is not None},
    }
