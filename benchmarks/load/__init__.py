"""Load on a system, from a process of its own: workloads, and what is measured of them."""
