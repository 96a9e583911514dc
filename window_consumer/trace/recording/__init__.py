"""Recording trace events: notes of steps become batches, which leave through a spool or at once."""
