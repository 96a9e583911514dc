"""Recording of trace events: notes become batches, which leave through a spool or directly."""
