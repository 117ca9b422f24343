"""Tests of the asyncio shell."""
