"""The replicated lock table (pure, deterministic) and the leader's desk of queues and in-flight keys. No I/O."""
