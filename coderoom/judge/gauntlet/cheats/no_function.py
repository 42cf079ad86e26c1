"""double: The function is missing."""

triple = None
