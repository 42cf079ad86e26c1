"""Runs tests of generated functions and computes the verdicts outside of their process."""
