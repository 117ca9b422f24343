"""The client wire: frames and handshake as pure functions and state machines over bytes. No I/O."""
