"""The sans-I/O node: sessions, clock gate, forming, identity and replacement around one Raft and one lock table."""
