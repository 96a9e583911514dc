"""Diagnosis: observations of workers and their cluster, and the likely cause of their lag."""
