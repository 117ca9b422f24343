"""The consensus core: elections, log, replication, membership, snapshots. No I/O, no clock, no randomness of
its own.
"""
