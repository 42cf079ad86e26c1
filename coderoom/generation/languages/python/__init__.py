"""Functions in Python: the language, and how a program and its tests become files."""
