"""Functions with which code of a session works on the files of a repository, and what a model has to know of them.

The functions are in `guest/editing.py`: they run behind the wall.
"""

from __future__ import annotations

from typing import Final

EDITING_HELP: Final = (
    "To work on the files of a repository, which are in the current folder, Python code may call "
    "list_files(pattern='*'), search(pattern, path='.', files='*') with a regular expression, "
    "read_file(path, first=1, last=None), edit_file(path, old, new, every=False), which replaces a text that is in "
    "the file exactly once, write_file(path, text) and apply_diff(diff) with a unified diff. Each returns text; print "
    "it. Line numbers are not part of the text of a file. A block labelled `diff` is applied as by apply_diff."
)
"""What a model has to know of the functions."""
EDITING_NAMES: Final = (
    "from coderoom_guest.editing import apply_diff, edit_file, list_files, read_file, search, write_file"
)
"""The cell that gives their names to a Python session."""
_MAPPING: Final = "print(__import__('coderoom_guest.mapping', fromlist=['_']).repository_map({}))"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\r": "\\r", "\0": "\\0"})


def map_code(tokens: int) -> str:
    """The cell that prints a map of the repository in its folder, of so many tokens at most."""
    return _MAPPING.format(tokens)


def applying(diff: str) -> str:
    """The cell that applies a diff. A traceback shows only its first line."""
    return f'print(apply_diff("""\\\n{diff.translate(_ESCAPES)}\n"""))'
