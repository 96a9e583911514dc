"""Metrics and spans for OpenTelemetry: where its SDK is set up, they go to its exporters.

Everything here knows the API alone, which is in the base install and does nothing by itself; only
``sdk``, ``exporting`` and ``ids`` need the extra ``otel``.
"""
