"""Benchmarks: each a command (`python -m benchmarks.<name>`). They print figures and never judge."""
