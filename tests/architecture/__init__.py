"""Tests of how the code is put together: what lies where, and which seams hold."""
