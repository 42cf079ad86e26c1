"""Tests of `coderoom.configs`."""
