"""Python: the language, and the export of a program and its tests."""
