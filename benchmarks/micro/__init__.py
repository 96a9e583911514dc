"""Micro-benchmarks of the core, without broker and threads: ``python -m pytest benchmarks/micro``.

They show what a change of one part costs. What counts for a user are the workloads.
"""
