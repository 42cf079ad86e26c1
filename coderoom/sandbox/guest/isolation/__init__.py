"""Builds what is left to build of a wall, from inside, and locks processes down."""
