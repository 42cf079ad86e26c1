"""Languages by their names, and sandboxes for their tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coderoom.errors import RequestError
from coderoom.generation.languages.base import Language
from coderoom.generation.languages.javascript.language import JavaScriptLanguage
from coderoom.generation.languages.python.language import PythonLanguage
from coderoom.sandbox import Sandbox

__all__ = ["language_named", "make_sandbox"]

_LANGUAGES: dict[str, Callable[[], Language]] = {"python": PythonLanguage, "javascript": JavaScriptLanguage}


def language_named(language: str | Language) -> Language:
    """The language of a name; a language is given back as it is.

    Raises:
        RequestError: There is none of that name.
    """
    if isinstance(language, Language):
        return language
    if language not in _LANGUAGES:
        raise RequestError(f"There is no language {language!r:.80}; there are {', '.join(_LANGUAGES)}.")
    return _LANGUAGES[language]()


def make_sandbox(wall: str = "auto", language: str | Language = "python", **options: Any) -> Sandbox:
    """A sandbox whose worker has the test harness of a language, so that sessions start faster.

    Args:
        wall: The wall.
        language: The language, or its name.
        options: Further arguments of `Sandbox`, except `preload`.

    Raises:
        RequestError: An argument is wrong.
    """
    return Sandbox(wall, preload=language_named(language).harness(), **options)
