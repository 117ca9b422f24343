"""The client wire."""
