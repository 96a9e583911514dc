"""Metrics, probes and spans of workers. This folder only observes."""
