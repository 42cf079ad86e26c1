"""What interprets cells: two engines with the same methods, and their sessions."""

from __future__ import annotations

from coderoom.sandbox.engines.cpython.engine import CPythonEngine
from coderoom.sandbox.engines.cpython.session import CPythonSession
from coderoom.sandbox.engines.monty.engine import MontyEngine, MontySession

__all__ = ["CPythonEngine", "Engine", "EngineSession", "MontyEngine"]

Engine = CPythonEngine | MontyEngine
EngineSession = CPythonSession | MontySession
