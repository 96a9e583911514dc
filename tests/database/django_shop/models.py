"""Models as an application has them."""

from __future__ import annotations

from django.db import models

from window_consumer.database.django import once_model, outbox_model

Outbox = outbox_model(__name__)
Once = once_model(__name__)


class Order(models.Model):  # type: ignore[misc] # Django has no types
    value = models.TextField(unique=True)

    class Meta:
        db_table = "orders"

    def __str__(self) -> str:
        return str(self.value)
