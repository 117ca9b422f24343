"""One file a system: how its servers are started, and the clients that are measured on it."""
