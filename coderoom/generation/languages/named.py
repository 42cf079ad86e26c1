"""`language_named`: the languages by their names, and a sandbox that is ready for one."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from coderoom import judge
from coderoom._util.plugins import Plugins
from coderoom.generation.languages import Language
from coderoom.sandbox import Sandbox

LANGUAGES: Final = Plugins(
    "language",
    {
        "python": "coderoom.generation.languages.python:PythonLanguage",
        "javascript": "coderoom.generation.languages.javascript:JavaScriptLanguage",
        "typescript": "coderoom.generation.languages.typescript:TypeScriptLanguage",
        "go": "coderoom.generation.languages.go:GoLanguage",
        "shell": "coderoom.generation.languages.shell:ShellLanguage",
    },
    ("name", "labels", "suffix", "ways", "harness", "load", "check"),
)
LanguageName: TypeAlias = Annotated[str, LANGUAGES]


def language_named(language: str | Language) -> Language:
    """The language with a name; a `Language` is returned unchanged."""
    if isinstance(language, Language):
        return language
    found: Language = LANGUAGES.load(language)()
    return found


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
