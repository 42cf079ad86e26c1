"""No text decides: what must be known from the words of others is read in one table each."""

from __future__ import annotations

import re

from tests.support.commands import ROOT

_ERROR = r"(?:error|exception|cause|failure|reason)"
_TEXT = rf"(?:(?:str|repr)\({_ERROR}\)|{_ERROR}\.(?:message|args)\b)"
DECIDES = re.compile(
    rf"\bin {_TEXT}(?!\.split)"
    rf"|\.(?:search|match|fullmatch)\({_TEXT}"
    rf"|{_TEXT}(?:\[0\])?\.(?:startswith|endswith|lower|find)\("
)
READERS = {
    "_util/autogen.py": "AutoGen",
    "models/services.py": "model services",
    # What is only shown depends on these: whether a message is printed already, and a hint.
    "cli/__init__.py": "Click",
    "sandbox/cell.py": "our own",
}


def test_sentences_are_read_in_the_tables_only() -> None:
    package = ROOT / "coderoom"
    files = {str(file.relative_to(package)): file.read_text("utf-8") for file in package.rglob("*.py")}
    found = {name for name, text in files.items() if DECIDES.search(text)}
    assert found == READERS.keys()
