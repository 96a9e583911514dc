"""The application: what decorators collect, put together with a configuration and a cluster.

Only this package wires kernel and features together.
"""
