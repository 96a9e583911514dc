"""What stands beside a consumer: dead letters that are put back, and the memory of them.

It may use core, kafka and model. What reads a configuration belongs to ``app``.
"""
