"""The dashboard on a terminal: widgets, keys and screens. The only package that imports textual."""
