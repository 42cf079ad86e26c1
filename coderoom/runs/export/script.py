"""A run as a Python script that repeats it: the code that ran, in order. Used by `coderoom runs export --as script`."""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from coderoom._util.text import visible
from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.runs.export.parts import Part, Ran, Said
from coderoom.runs.journal import RunEntry
from coderoom.sandbox import PROGRAMS, named_file
from coderoom.sandbox.guest.cells import dedented

_HEAD: Final = """\
#!/usr/bin/env python3
# The code that a run of CodeRoom has executed, in order.
# A model may have written it, and here nothing isolates it: read it first, or run it by `coderoom exec`.
"""
_ENDS: Final = re.compile(r"\b(?:exit|quit|_exit|abort)\s*\(")
_PACKAGE: Final = re.compile(r"^([A-Za-z0-9][\w.-]*==[\w.!+*-]+)", re.MULTILINE)
_EDITS: Final = re.compile(r"(?<![\w.])(apply_diff|edit_file|list_files|read_file|search|write_file)\s*\(")
_METADATA: Final = "# /// script"
_IN_WORDS: Final[Mapping[str, str]] = {
    Outcome.TIMEOUT: "it took too long",
    Outcome.MEMORY: "it took too much memory",
}
# By name, what the script needs of it.
_HELPERS: Final = {
    "_show": '''\
def _show(value):
    """Print the value of a last expression."""
    if value is not None:
        print(repr(value))
''',
    "_save": '''\
def _save(name, code):
    """Write code to the file that it names."""
    pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(name).write_text(code, encoding="utf-8")
''',
    "_cell": '''\
def _cell(code):
    """Run code that fails, ends itself or waits; return whether it worked."""
    try:
        waits = eval(compile(code, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), globals())
        if waits is not None:
            asyncio.run(waits)
    except SystemExit as error:
        return not error.code
    except Exception:
        traceback.print_exc()
        return False
    return True
''',
    "_program": '''\
def _program(command, code, suffix="", source="", build=""):
    """Run code of another language; return whether it worked."""
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, source or f"cell{suffix}")
        file.write_text(code, encoding="utf-8")
        if build:
            if subprocess.run(["sh", "-c", build], cwd=folder).returncode:
                return False
            file = file.with_name("built")
        words = [each.replace("{file}", str(file)).replace("{python}", sys.executable) for each in command]
        return subprocess.run(words).returncode == 0
''',
}
_IMPORTS: Final = {
    "_show": (),
    "_save": ("pathlib",),
    "_cell": ("ast", "asyncio", "sys", "traceback"),
    "_program": ("pathlib", "subprocess", "sys", "tempfile"),
}


def as_comment(text: str) -> str:
    """A text as a comment, which nothing in it can end; it is not one that tools read, such as `# /// script`."""
    return "\n".join(f"#   {line}".rstrip() for line in visible(text).split("\n"))


def script_of(entry: RunEntry, facts: Mapping[str, str], parts: Sequence[Part]) -> str:
    """The text of the script.

    Raises:
        RequestError: The run has no code, or is a solution in another language.
    """
    ran = [part for part in parts if isinstance(part, Ran)]
    language = str(entry.facts.get("language") or "python")
    if entry.command == "solve" and language != "python":
        raise RequestError(f"The run {entry.id} has written {language}, which is no Python script: take markdown.")
    if not any(part.blocks for part in ran):
        raise RequestError(f"The run {entry.id} has run no code.")
    shows = entry.command != "exec" or PurePath(entry.name).suffix.lower() in (".md", ".markdown", ".ipynb", "")
    arguments = [str(each) for each in entry.request.get("arguments") or ()]
    used: dict[str, None] = {}
    body = []
    for part in parts:
        if isinstance(part, Ran):
            body.append(_code(part, used, arguments, shows=shows))
        else:
            body.append(_words(part))
    functions = sorted({name for part in ran for name in part.functions})
    return "\n\n".join(
        [
            _HEAD + as_comment("\n".join(_facts(facts, functions))),
            *_packages(entry, ran),
            *_preamble(used, arguments),
            *_editing(entry, ran),
            *body,
        ]
    ) + "\n"  # fmt: skip


def _words(said: Said) -> str:
    return as_comment(f"{said.source}: {said.text}" if said.source else said.text)


def _facts(facts: Mapping[str, str], functions: Sequence[str]) -> list[str]:
    found = [f"{name}: {value}" for name, value in facts.items()]
    if "folder" in facts:
        found.append("It works in the current folder: begin in a copy of that one, as it was before the run.")
    if functions:
        found.append(f"It called functions of the program that ran it, which are not here: {', '.join(functions)}")
    return found


def _packages(entry: RunEntry, ran: Sequence[Ran]) -> list[str]:
    """The packages that the code had, as inline metadata, if the code has none itself."""
    found = _PACKAGE.findall(entry.facts.get("lock") or "")
    if not found or any(_METADATA in code for part in ran for _, code in part.blocks):
        return []
    return ["\n".join([_METADATA, "# dependencies = [", *(f'#   "{each}",' for each in found), "# ]", "# ///"])]


def _editing(entry: RunEntry, ran: Sequence[Ran]) -> list[str]:
    """The import of the functions for files of a repository that the code calls, if its executor gave it these."""
    names = {name for part in ran for _, code in part.blocks for name in _EDITS.findall(code)}
    has_them = "editing" in str(entry.request.get("source"))
    return [f"from coderoom.sandbox.guest.editing import {', '.join(sorted(names))}"] if names and has_them else []


def _preamble(used: Mapping[str, None], arguments: Sequence[str]) -> list[str]:
    modules = {module for name in used for module in _IMPORTS[name]} | ({"sys"} if arguments else set())
    imports = "\n".join(f"import {module}" for module in sorted(modules))
    given = f"sys.argv[1:] = {list(arguments)!r}" if arguments else ""
    helpers = "\n\n".join(f"\n{text.rstrip()}" for name, text in _HELPERS.items() if name in used)
    return [each for each in (imports, helpers, given) if each]


def _code(part: Ran, used: dict[str, None], arguments: Sequence[str], *, shows: bool) -> str:
    """A part's code, as it is where that is possible."""
    title = as_comment(f"--- {part.title}: {part.outcome} ---").replace("#   ", "# ", 1)
    if part.undone or part.outcome not in (Outcome.OK, Outcome.ERROR):
        why = "it was undone" if part.undone else _IN_WORDS.get(part.outcome, "it was ended")
        code = "\n\n".join(code for _, code in part.blocks)
        left_out = as_comment(f"Left out, since {why}:\n{code}")
        return f"{title}\n{left_out}"
    lines = [title]
    calls = []
    for language, code in part.blocks:
        if (name := named(code)) is not None:
            used["_save"] = None
            lines.append(f"_save({name!r}, {literal(code)})")
        if language != "python":
            calls.append(_program(language, code, arguments))
            used["_program"] = None
            continue
        source = dedented(code)
        source = showing(source) if shows else source
        if part.outcome == Outcome.OK and _is_plain(source):
            lines += [f"{call} or sys.exit(1)" for call in calls]
            calls.clear()
            lines.append(source.rstrip("\n"))
            used |= {"_show": None} if "_show(" in source else {}
        else:
            used |= {"_cell": None, **({"_show": None} if "_show(" in source else {})}
            calls.append(f"_cell({literal(source)})")
    if part.outcome == Outcome.OK:
        lines += [f"{call} or sys.exit(1)" for call in calls]
    elif calls:  # It failed somewhere: what comes after that did not run.
        lines.append(" and ".join(calls))
    return "\n".join(lines)


@dataclass(frozen=True)
class _Block:
    code: str
    language: str = ""


def named(code: str) -> str | None:
    """The file that the first line of code names."""
    return named_file(_Block(code))


def _program(language: str, code: str, arguments: Sequence[str]) -> str:
    if language not in PROGRAMS:  # A difference that the sandbox has applied.
        return f'_program(("git", "apply", "{{file}}"), {literal(code)})'
    program = PROGRAMS[language]
    command = program.argv if "{file}" in program.argv else program.reading or program.argv
    if language in ("sh", "bash") and arguments:
        code = f"set -- {shlex.join(arguments)}; {code}"
    more = {"suffix": program.suffixes[0], "source": program.source, "build": program.build}
    given = "".join(f", {name}={value!r}" for name, value in more.items() if value)
    return f"_program({command!r}, {literal(program.whole(code))}{given})"


def literal(text: str) -> str:
    """A text as Python, over several lines if it has some."""
    if "\n" in text:
        for quotes in ("'''", '"""'):
            for prefix in ("r", "") if "\\" in text else ("",):
                found = f"{prefix}{quotes}{text}{quotes}"
                if _value(found) == text:
                    return found
    return repr(text)


def _value(source: str) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.literal_eval(source)
        except (SyntaxError, ValueError):
            return None


def _compiled(source: str, flags: int = 0) -> Any:
    """What `compile` returns; `None` if it is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return compile(source, "cell", "exec", flags, dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _is_plain(source: str) -> bool:
    """Whether code can stand in a script as it is."""
    return _compiled(source) is not None and "__future__" not in source and not _ENDS.search(source)


def showing(source: str) -> str:
    """Code that shows the value of its last expression, as a session does."""
    tree = _compiled(source, ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    last = tree.body[-1] if tree is not None and tree.body else None
    if not isinstance(last, ast.Expr) or last.end_lineno is None or last.end_col_offset is None or "\r" in source:
        return source
    if isinstance(last.value, ast.Call) and isinstance(last.value.func, ast.Name) and last.value.func.id == "print":
        return source
    # What has commas but no parentheses would be several arguments.
    begins, ends = (b"_show((", b"))") if isinstance(last.value, ast.Tuple) else (b"_show(", b")")
    lines = source.split("\n")
    data = [line.encode() for line in lines]
    begin, end = last.lineno - 1, last.end_lineno - 1
    # From the end, so that places before it stay.
    data[end] = data[end][: last.end_col_offset] + ends + data[end][last.end_col_offset :]
    data[begin] = data[begin][: last.col_offset] + begins + data[begin][last.col_offset :]
    return b"\n".join(data).decode()
