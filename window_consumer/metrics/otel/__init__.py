"""Metrics and spans for OpenTelemetry: if its SDK is set up, they go to its exporters.

Everything here needs only the API, which is part of the base install and does nothing by itself.
Only ``sdk``, ``exporting`` and ``providers`` need the extra ``otel``.
"""
