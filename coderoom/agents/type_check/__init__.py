"""The check of types: it finds calls in a model's code that are surely wrong, before anything of the code runs.

`attempts.py` has what `CodeActAgent` uses, `checker.py` runs the type checker, `mistakes.py` chooses which of its
errors are certain, `names.py` reads what code binds and calls, and `stubs.py` writes what is known of functions.
"""

from __future__ import annotations

from coderoom.agents.type_check.attempts import TypeCheck

__all__ = ["TypeCheck"]
