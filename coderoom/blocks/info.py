"""What a fence says about its block: the language, the attributes, the file name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["DATA_LANGUAGES", "Info", "file_name", "is_no_run", "normalize_language", "parse_info"]

_SPELLINGS = {
    "python": "py ipython",
    "sh": "bash shell zsh ash dash ksh shellscript shell-script",
    "javascript": "js node nodejs mjs cjs",
    "typescript": "ts mts cts",
    "pwsh": "powershell ps1 posh",
    "bat": "batch cmd",
    "ruby": "rb",
    "rust": "rs",
    "go": "golang",
    "kotlin": "kt kts",
    "csharp": "cs c#",
    "fsharp": "fs f#",
    "cpp": "c++ cxx cc hpp",
    "haskell": "hs",
    "julia": "jl",
    "perl": "pl",
    "yaml": "yml",
    "markdown": "md mkd mdown",
    "html": "htm",
    "latex": "tex",
    "dockerfile": "docker",
    "makefile": "make mk",
    "text": "txt plain plaintext",
}
_LANGUAGES = {spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings.split()}
# Labels under which models show data and prose, not code that they want to be run.
DATA_LANGUAGES = frozenset(
    "console css csv diff env html ini json json5 jsonl latex log markdown mermaid none output pycon svg text toml "  # noqa: SIM905
    "tsv xml yaml".split()
)
_PYTHON_3 = re.compile(r"(?:i?python|py)3(?:\.\d+)*")

_PART = re.compile(r"""([{}])|([^\s,={}"']+)(?:=("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,}]*))?""")
_NAME_WITH_EXTENSION = re.compile(r"[^\s]*[^\s./\\]\.[A-Za-z][A-Za-z0-9]{0,9}")
_NAME_COMMENT = re.compile(r"[ \t]*(?:#|//|--|<!--|/\*)[ \t]*(?:filename|file)[ \t]*:", re.IGNORECASE)
_LONGEST_NAME_LINE = 4096


def normalize_language(name: str) -> str:
    """Return the one name under which a language is known here.

    Transcripts (`pycon`, `console`) keep their own names, since they are no code that could run as it is. So does
    `python2`.

    Args:
        name: The name as a fence gives it, in any case, for instance `py3`, `Bash` or `yml`.

    Returns:
        The usual name, or the given one in lower case if it is not known.
    """
    name = name.strip().lower()
    return "python" if _PYTHON_3.fullmatch(name) else _LANGUAGES.get(name, name)


@dataclass(frozen=True, slots=True)
class Info:
    """An info string, taken apart."""

    tag: str
    path: str
    attributes: dict[str, str]


def parse_info(info: str) -> Info:
    """Take an info string apart; no spelling of it is an error.

    The usual styles are read: `python title="x.py" no-run`, `{.python file=x.py}`, `rust,no_run`, `python:src/app.py`.
    """
    tag, path = "", ""
    attributes: dict[str, str] = {}
    in_braces = False
    for match in _PART.finditer(info):
        brace, word, value = match.groups()
        if brace:
            in_braces = brace == "{"
        elif value is not None:
            attributes[word] = _unquote(value)
        elif in_braces and word.startswith("#"):
            attributes["id"] = word[1:]
        else:
            is_class = in_braces and word.startswith(".")
            word = word.lstrip(".") if is_class else word
            if not tag and (is_class or not attributes) and not is_no_run({word: ""}):
                tag, path = _split_path(word)
            else:
                attributes[word] = ""
    return Info(tag, path, attributes)


def is_no_run(attributes: Mapping[str, str]) -> bool:
    """Return whether the attributes say that the block is not to run."""
    return any(
        key.lower().replace("_", "-") in {"no-run", "norun"} and value.lower() not in {"false", "no", "0"}
        for key, value in attributes.items()
    )


def file_name(info: Info, code: str) -> str | None:
    """Return the file name that the info string or a comment at the top of the code gives, as written."""
    named = {key.lower(): value.strip() for key, value in info.attributes.items()}
    title = named.get("title", "")
    if not _NAME_WITH_EXTENSION.fullmatch(title):
        title = ""
    given = named.get("filename") or named.get("file") or named.get("path") or title or info.path
    return given or _name_in_comment(code)


def _name_in_comment(code: str) -> str | None:
    first, _, rest = code.partition("\n")
    line = rest.partition("\n")[0] if first.startswith("#!") else first
    match = _NAME_COMMENT.match(line) if len(line) <= _LONGEST_NAME_LINE else None
    if match is None:
        return None
    name = line[match.end() :].strip().removesuffix("-->").removesuffix("*/").strip()
    name = name.strip("\"'`").strip()
    # "# file: reads the whole of it" is a remark and no name.
    is_name = len(name.split()) == 1 or _NAME_WITH_EXTENSION.fullmatch("".join(name.split()))
    return name if is_name else None


def _split_path(word: str) -> tuple[str, str]:
    name, _, path = word.partition(":")
    return (name, path) if name else (word, "")


def _unquote(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        # Only quotes are unescaped: a backslash in a file name stays what it is.
        return re.sub(r"\\([\"'])", r"\1", value[1:-1])
    return value.strip("\"'")
