"""The languages that there are, by their names."""

from __future__ import annotations

from collections.abc import Callable

from coderoom.errors import RequestError
from coderoom.generation.languages.base import Language
from coderoom.generation.languages.javascript.language import JavaScriptLanguage
from coderoom.generation.languages.python.language import PythonLanguage

__all__ = ["language_named"]

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
