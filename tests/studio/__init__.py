"""Tests of `coderoom.studio`."""
