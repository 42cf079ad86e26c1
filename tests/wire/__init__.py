"""Tests over a real wire."""
