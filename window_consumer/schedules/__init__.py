"""Schedules: records that are sent at the times of cron expressions, see docs/schedules.md."""
