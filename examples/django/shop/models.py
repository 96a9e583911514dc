from django.db import models

from window_consumer.database.django import once_model, outbox_model

Outbox = outbox_model(__name__)  # the table wc_outbox
Once = once_model(__name__)  # the table wc_once


class Order(models.Model):
    item = models.TextField()

    def __str__(self) -> str:
        return self.item


class Invoice(models.Model):
    order_id = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.order_id}"
