"""The outbox and ``once`` on Django's own connections: models and transactions.

``outbox_model`` and ``once_model`` define models in an application's ``models.py``, for which
``makemigrations`` writes migrations. ``once`` turns each call of a handler into a Django
transaction. Needs ``pip install 'window-consumer[django]'``.
"""

from __future__ import annotations

from window_consumer.database import require_sqlalchemy

require_sqlalchemy("window_consumer.database.django")

from window_consumer.database.django_settings import require_django  # noqa: E402 - needs SQLAlchemy

require_django("window_consumer.database.django")

from window_consumer.database.django.borrowed import fresh_connections  # noqa: E402 - what it needs is checked first
from window_consumer.database.django.effects import DjangoOnce, once  # noqa: E402 - likewise
from window_consumer.database.django.models import OnceModel, OutboxModel, once_model, outbox_model  # noqa: E402 - likewise

__all__ = [
    "DjangoOnce",
    "OnceModel",
    "OutboxModel",
    "fresh_connections",
    "once",
    "once_model",
    "outbox_model",
]
