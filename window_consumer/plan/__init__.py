"""An application before it runs: its definition, its plan, its topics.

Features and ``app`` build on this package, which imports neither.
"""
