"""Configuration files: models, checks, and the cluster folder that `ticketing init` writes."""
