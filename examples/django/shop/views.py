from django.db import transaction
from django.http import HttpRequest, JsonResponse

from shop.models import Order, Outbox


def place(request: HttpRequest, item: str) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(item=item)
        Outbox.add("orders", key=f"{order.pk}", value=f"{order.pk}")
    return JsonResponse({"id": order.pk})
