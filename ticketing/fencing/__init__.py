"""Fencing at the database: the lock orders turns, the database refuses stale writes (spec 11)."""
