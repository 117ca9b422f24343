"""Tests of the fencing guards."""
