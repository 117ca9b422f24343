"""The optional compiled build does what the sources do (docs/performance.md)."""
