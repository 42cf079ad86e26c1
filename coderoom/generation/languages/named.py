"""`language_named`: the languages by their names, and a sandbox that is ready for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coderoom import judge
from coderoom.errors import RequestError
from coderoom.generation.languages import Language
from coderoom.generation.languages.go import GoLanguage
from coderoom.generation.languages.javascript import JavaScriptLanguage
from coderoom.generation.languages.python import PythonLanguage
from coderoom.generation.languages.shell import ShellLanguage
from coderoom.generation.languages.typescript import TypeScriptLanguage
from coderoom.sandbox import Sandbox

_LANGUAGES: dict[str, Callable[[], Language]] = {
    "python": PythonLanguage,
    "javascript": JavaScriptLanguage,
    "typescript": TypeScriptLanguage,
    "go": GoLanguage,
    "shell": ShellLanguage,
}


def language_named(language: str | Language) -> Language:
    """The language with a name; a `Language` is returned unchanged."""
    if isinstance(language, Language):
        return language
    if language not in _LANGUAGES:
        raise RequestError(f"Unknown language {language!r:.80}; known are {', '.join(_LANGUAGES)}.")
    return _LANGUAGES[language]()


def make_sandbox(wall: str = "auto", language: str | Language = "python", **options: Any) -> Sandbox:
    """Make a sandbox in whose warm worker the test harness of a language is preloaded, so that tests start faster.

    Args:
        wall: The wall (isolation backend).
        language: The language or its name.
        options: Further arguments of `Sandbox`, except `preload`.

    Raises:
        RequestError: An argument is invalid.
    """
    return judge.make_sandbox(wall, language_named(language), **options)
