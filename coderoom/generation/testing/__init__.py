"""Runs tests of generated functions and computes the verdict outside of their process."""
