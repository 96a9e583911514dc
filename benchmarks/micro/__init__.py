"""Micro-benchmarks of the core, without broker and threads: ``pytest benchmarks/micro``.

They show what a change of one part costs. The workloads show what matters to users.
"""
