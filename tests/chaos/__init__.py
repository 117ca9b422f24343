"""Faults on real processes: whole clusters in network namespaces, a nemesis, many clients, and judges (issue 8).

`python -m tests.chaos --seed 7 --minutes 5 --nodes 5`; what it does and what it promises is in `docs/chaos.md`.

| module | what it is |
| --- | --- |
| `plan.py` | the seeded schedule: rounds of faults, drawn before anything runs |
| `network.py`, `forwarder.py` | machines in namespaces; cuts, losses and resets by nftables, slow paths by TUN |
| `machines.py`, `cluster.py` | hosts with their clocks and services; the cluster as its operator sees it |
| `nemesis.py`, `faults.py` | carries the plan out; one function a kind of fault |
| `workload.py`, `clients.py` | a program that uses locks over the library; its processes |
| `record.py` | what such a program writes down, and the history that is made of it |
| `ledger.py` | fenced writes, and what the database says at the end |
| `stalls.py` | when the machine served somebody else |
| `liveness.py` | when a majority could serve, and how long nothing was granted then |
| `run.py`, `report.py` | one run from the first namespace to the verdict |
"""
