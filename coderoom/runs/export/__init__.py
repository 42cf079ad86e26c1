"""A run as one file: a notebook, Markdown, or a Python script that repeats it."""
