"""Queues that clients of Amazon SQS read and write: a worker with `pull` is one."""
