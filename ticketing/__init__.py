"""A distributed lock service with a first-come, first-served queue and fencing tokens."""

__version__ = "0.1.0"
