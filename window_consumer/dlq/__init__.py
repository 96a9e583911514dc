"""Dead letters: read, show, count, report, redrive and purge them.

``engine.retry.copy_record`` defines the copies that workers write.
"""
