"""Helpers that several packages share; not part of the public interface."""
