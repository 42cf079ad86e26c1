"""Hypothesis tries a quarter as many examples in `make test` as in the full run."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("quick", max_examples=25)
