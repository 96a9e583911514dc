"""The application: its decorators, combined with a configuration and a cluster.

Only this package wires kernel and features together.
"""
