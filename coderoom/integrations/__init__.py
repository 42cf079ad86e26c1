"""Doors to the sandbox for other programs and frameworks: one module each, which alone imports its framework."""
