"""The audit: comparable counts, by time, of written records and of their outcomes.

``Audit`` counts for a program without workers: its producers report the records that they write.
"""

from __future__ import annotations

from window_consumer.audit.consumer import AuditRules
from window_consumer.audit.process_audit import Audit, AuditSettings
from window_consumer.audit.shipper import to_topic

__all__ = ["Audit", "AuditRules", "AuditSettings", "to_topic"]
