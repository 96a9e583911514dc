import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django.setup()

from shop.models import Invoice, Once, Outbox  # noqa: E402 - models need Django set up
from window_consumer import App, Produce, Record  # noqa: E402 - behind the line above
from window_consumer.database.django import once  # noqa: E402 - behind the line above

app = App("shop")


@app.handler("orders", group="shop", ordering="unordered", once=once(Once, outbox=Outbox))
def invoice(order: Record) -> Produce:
    Invoice.objects.create(order_id=int(order.text()))
    return Produce("order-events", order.key, b"invoiced")
