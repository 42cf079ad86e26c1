"""Imported by the packages that need more than `coderoom-slim` brings, so that they say what to install."""

from coderoom._util.distribution import MORE_NEEDED, is_slim
from coderoom.errors import MissingDependencyError

if is_slim():
    raise MissingDependencyError(f"This {MORE_NEEDED}")
