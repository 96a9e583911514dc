"""An application of Django in the test process, whose databases are those of the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django
import sqlalchemy as sa
from django.conf import settings

from window_consumer import App, Record, Running
from window_consumer.database import Once, Outbox
from window_consumer.database.outbox.config import OutboxConfig
from window_consumer.database.outbox.setup import OutboxDatabase
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord

if not settings.configured:
    settings.configure(
        INSTALLED_APPS=["tests.database.django_shop"],
        DATABASES={},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        LOGGING_CONFIG=None,  # pytest has its own
        USE_TZ=True,
    )
    django.setup()

from django.db import connections

from tests.database.django_shop import models
from window_consumer.database.django import once

DEADLINE_S = 60.0


class DjangoShop:
    """A worker whose handler writes an order with Django's ORM, and behaves as a test says."""

    def __init__(self, broker: EmbeddedBroker, directory: Path, url: str):
        self.broker = broker
        self.directory = directory
        self.url = url
        self.alias = directory.name
        self.behave: Callable[[Record], object] = lambda _: None
        connections.settings.update(
            connections.configure_settings({"default": {}, self.alias: database_of(url)})
        )
        with self.own.schema_editor() as editor:
            for model in (models.Order, models.Outbox, models.Once):
                editor.create_model(model)

    @property
    def own(self) -> Any:
        """This thread's connection."""
        return connections[self.alias]

    def once(self, **given: Any) -> Once:
        return once(models.Once, models.Outbox, using=self.alias, **given)

    def start(self, made: Once | None = None, **worker: Any) -> Running:
        return self.app(made or self.once()).start(self.file(**worker), start_timeout=DEADLINE_S)

    def app(self, made: Once) -> App:
        app = App("shop")

        def place(order: Record) -> object:
            models.Order.objects.using(self.alias).create(value=order.text())
            return self.behave(order)

        app.handler("orders", group="shop", name="place", once=made)(place)
        return app

    def file(self, **worker: Any) -> Path:
        kafka = {"bootstrap.servers": self.broker.bootstrap}
        file = self.directory / "workers.yaml"
        file.write_text(json.dumps({"kafka": kafka, "workers": {"place": worker}}))
        return file

    def fill(self, *values: str, ids: tuple[str, ...] = ()) -> None:
        self.broker.fill(
            "orders",
            [
                NewRecord(value.encode(), b"k", headers=[("wc-id", ids[n].encode())] if ids else [])
                for n, value in enumerate(values)
            ],
        )

    @property
    def placed(self) -> list[str]:
        return sorted(models.Order.objects.using(self.alias).values_list("value", flat=True))

    def rows(self) -> list[Any]:
        """Return the rows of the outbox."""
        return list(models.Outbox.objects.using(self.alias).order_by("created_at"))

    def ids(self) -> int:
        """Return how many ids the table of ``once`` has."""
        return int(models.Once.objects.using(self.alias).count())

    def relay(self) -> OutboxDatabase:
        """Return the relay's side."""
        return OutboxDatabase.of(OutboxConfig(database=f"django://{self.alias}"))

    def close(self) -> None:
        self.own.close()


def database_of(url: str) -> dict[str, Any]:
    """Return Django's settings of a database."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        options = {"init_command": "PRAGMA journal_mode=WAL", "transaction_mode": "IMMEDIATE"}
        engine = "django.db.backends.sqlite3"
        return {"ENGINE": engine, "NAME": parsed.database, "OPTIONS": options, "CONN_MAX_AGE": None}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parsed.database,
        "USER": parsed.username,
        "HOST": parsed.host,
        "PORT": parsed.port,
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
    }


def sqlalchemy_outbox() -> Outbox:
    """Return the same table as SQLAlchemy's users have it."""
    return Outbox(sa.MetaData())
