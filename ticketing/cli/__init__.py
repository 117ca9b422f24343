"""The `ticketing` command."""
