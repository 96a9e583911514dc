"""Dead letters: reading, showing, counting, reporting and redriving them.

What a copy looks like when the engine writes it is in ``engine.retry.copy_record``.
"""
