"""The delay service: delivers records to their topics at given times, see docs/delay.md."""
