"""Tests of the code's structure: where things are, and which boundaries hold."""
