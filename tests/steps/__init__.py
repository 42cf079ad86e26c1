"""Tests of `coderoom.steps`."""
