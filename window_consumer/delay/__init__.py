"""The delay service: records that are delivered to their topic at a time, see docs/delay.md."""
