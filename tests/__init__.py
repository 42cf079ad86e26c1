"""The tests of CodeRoom."""
