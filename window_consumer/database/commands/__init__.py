"""The commands of ``once``; those of the outbox are in ``cli``."""
