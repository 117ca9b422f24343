"""The scenarios, one file a subject. Importing the files puts them on the list."""

from tests.conformance.play import SCENARIOS, Scenario
from tests.conformance.scenarios import (
    answers,
    cancelling,
    closing,
    clusters,
    domains,
    frames,
    handshake,
    leader,
    leases,
    ranges,
    releasing,
    tls,
    waiting,
)

SUBJECTS = (
    handshake,
    tls,
    frames,
    ranges,
    waiting,
    leader,
    answers,
    cancelling,
    leases,
    releasing,
    domains,
    closing,
    clusters,
)

__all__ = ["SCENARIOS", "SUBJECTS", "Scenario"]
