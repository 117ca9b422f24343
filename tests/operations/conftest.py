"""Clusters on loopback as the end-to-end tests have them."""

from tests.e2e.conftest import make_cluster, open_session, pytest_runtest_makereport

__all__ = ["make_cluster", "open_session", "pytest_runtest_makereport"]
