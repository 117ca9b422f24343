"""Pure functions from the model to text: rows, bars, sparklines, whole frames. No terminal, no clock, no I/O."""
