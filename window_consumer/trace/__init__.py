"""The message trace: what happened to each record, recorded step by step for later queries."""

from __future__ import annotations

from window_consumer.model.key_forms import key_form

__all__ = ["key_form"]
