"""Tests of `coderoom.models`."""
