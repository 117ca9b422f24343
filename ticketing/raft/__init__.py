"""The consensus core: elections, log, replication, membership, snapshots. No I/O, no clock, no randomness.

`core.Raft` is the facade, `core.Output` what a turn has to do. Behind it, each with one subject:

- `types`, `messages`: the values, on the wire and off it;
- `log`, `configurations`, `replica`: what a member has whatever its role;
- `quorum`, `membership`: majorities, and which configuration may follow which;
- `election`: roles, timers, votes;
- `follower`: answers to a leader;
- `lead`: what exists only while leading; `replication`, `progress`, `barriers`, `transfer` are its parts;
- `invariants`: all that must hold, asserted by tests and the simulator after every event.

Where this departs from Ongaro's thesis, and why:

- Nothing is stored (3.8 asks for term, vote and log on disk). A process that ends is gone for good: its member is
  a NodeId and a random incarnation, which never come back, so a crash is a loss and never an amnesia. The base of
  a formed domain has index 1, so that no blank log can be mistaken for it.
- A process outside of its newest configuration campaigns, but only once it has refused a vote because its own log
  is further (4.2.2 lets it at any time). So a learner never stands for election in the ordinary course (F065),
  and yet no crash in the middle of a replacement leaves a majority whose members refuse each other.
- A leader that the final configuration leaves out hands over with TimeoutNow once that is committed, then goes
  (4.2.2 lets it just go); so does a leader that never was a voter.
- Heartbeats are appends with the previous entry, so they find lost entries out. Each carries a round, by which
  barriers (6.4), CheckQuorum (6.2) and a process that went back in time are judged.
- A pre-vote request states the real term only: nobody can take a prospective term for one that was reached.
"""
