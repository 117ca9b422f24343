"""What operators do, on real processes: the runbook followed line by line, clocks that go wrong, limits, certificates.

Whatever needs root, network namespaces (iproute2) or libfaketime is skipped with its reason where these are missing,
and fails instead where `TICKETING_TESTS_COMPLETE` is set, as continuous integration does.
"""
