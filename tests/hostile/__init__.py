"""Hostile clients, peers and operators against running nodes (docs/hostile.md)."""
