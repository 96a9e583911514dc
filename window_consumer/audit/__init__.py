"""The audit: comparable counts, by time, of what was written and what became of it.

``Audit`` counts for a program that is no worker: its producers report what they write.
"""

from __future__ import annotations

from window_consumer.audit.consumer import AuditRules
from window_consumer.audit.process_audit import Audit, AuditSettings
from window_consumer.audit.shipper import to_topic

__all__ = ["Audit", "AuditRules", "AuditSettings", "to_topic"]
