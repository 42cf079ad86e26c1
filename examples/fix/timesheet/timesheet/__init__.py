"""Sums up hours of work by person and calendar week."""
