"""Shared terms: records, outcomes, errors, wire names and the protocols between the layers.

Modules here are shared by several layers and import none of them. Rules belong in ``engine``, code
that talks to Kafka in ``kafka``.
"""
