"""What notebooks write besides Python: `!command`, `%cd folder`, `%%bash` and the like, translated to Python.

Used by the interpreter, for code that is no Python, and by the host before it runs a notebook.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import io
import os
import re
import shlex
import subprocess
import sys
import time
import tokenize
from typing import Any, Callable

_LINE = re.compile(r"(?P<indent>[ \t]*)(?:(?P<target>[^\W\d][\w.,\[\] ]*?)[ \t]*=[ \t]*)?(?P<mark>%|!!?)(?P<text>.*)")
_CELL = re.compile(r"\s*%%(?P<name>\w+)[ \t]*(?P<rest>[^\n]*)\n?(?P<body>[\s\S]*)")
_GIVEN = re.compile(r"\$\$|\$([^\W\d]\w*)|\{([^{}\n]+)\}")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_HERE = "__import__('coderoom_guest.magics', fromlist=['run']).%s(%s)"
_NOTHING_TO_DO = ("autosave", "colors", "config", "matplotlib", "precision", "pylab", "autoreload", "aimport")
_OF_LINES = ("cd", "conda", "env", "load_ext", "ls", "mkdir", "pip", "pwd", "set_env", "system", "sx", "time", "timeit")
_OF_CELLS = ("bash", "sh", "time", "writefile", "file")
_SHELLS = {"bash": "bash", "sh": "sh"}


def unknown_in(code: str) -> str:
    """The first command of a notebook in a cell that cannot be run; empty if there is none."""
    cell = _CELL.fullmatch(code)
    if cell and cell["name"] not in _OF_CELLS:
        return f"%%{cell['name']}"
    for _, found in _commands(code if cell is None else cell["body"] if cell["name"] == "time" else ""):
        name = found["text"].split()[:1]
        if found["mark"][0] == "%" and (not name or name[0] not in (*_OF_LINES, *_NOTHING_TO_DO)):
            return str(found["mark"] + found["text"]).strip()
        if name == ["load_ext"] and found["text"].split()[1:] != ["autoreload"]:
            return str(found["mark"] + found["text"]).strip()
    return ""


def translate(code: str) -> str:
    """Return a cell with each command of a notebook as a call, on the same line; the cell itself if it has none.

    Raises:
        SyntaxError: It has a command that is not known here.
    """
    unknown = unknown_in(code)
    if unknown:
        raise SyntaxError(f"{unknown!r} is a command of IPython, which is not here; write it in Python")
    cell = _CELL.fullmatch(code)
    before = code[: len(code) - len(code.lstrip())]
    if cell is not None and cell["name"] != "time":
        return before + _HERE % ("run_cell", f"{cell['name']!r}, {cell['rest']!r}, {cell['body']!r}")
    if cell is not None:
        return f"{before}{_HERE % ('start_timer', '')}\n{translate(cell['body'])}"
    lines = code.split("\n")
    for number, found in _commands(code):
        target = f"{found['target']} = " if found["target"] else ""
        text = f"{found['mark']!r}, {found['text'].strip()!r}"
        statement = found["text"].strip().partition(" ")
        if statement[0] == "time" and found["mark"] == "%":
            is_value = "await" not in statement[2] and _is_expression(statement[2])
            call = _HERE % ("timed", f"lambda: ({statement[2]})" if is_value else "")
            lines[number] = f"{found['indent']}{target}{call}" + ("" if is_value else f"; {statement[2]}")
            continue
        spaces = "{**globals(), **locals()}"
        lines[number] = f"{found['indent']}{target}{_HERE % ('run', f'{text}, {bool(target)}, {spaces}')}"
    return "\n".join(lines)


def _commands(code: str) -> list[tuple[int, Any]]:
    """The lines that are commands, with their numbers from 0: not those inside of a text or of brackets."""
    lines = code.split("\n")
    found = [(number, _LINE.fullmatch(line)) for number, line in enumerate(lines)]
    commands = [
        (number, each)
        for number, each in found
        if each is not None and each["text"].strip() and not (number and lines[number - 1].endswith("\\"))
    ]
    while commands:
        numbers = {number for number, _ in commands}
        text = "\n".join("%s0" % each["indent"] if each and number in numbers else line
                         for (number, each), line in zip(found, lines))  # fmt: skip # noqa: B905
        inside = _inside_of_something(text, numbers)
        if not inside:
            return commands
        commands = [(number, each) for number, each in commands if number not in inside]
    return commands


def _inside_of_something(text: str, numbers: set[int]) -> set[int]:
    inside: set[int] = set()
    depth, opened = 0, 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            begin, end = token.start[0] - 1, token.end[0] - 1
            inside.update(number for number in numbers if begin < number <= end)
            if depth and begin in numbers and begin > opened:
                inside.add(begin)
            if token.type == tokenize.OP and token.string in "([{":
                depth, opened = depth + 1, begin
            elif token.type == tokenize.OP and token.string in ")]}":
                depth -= 1
    except (tokenize.TokenError, SyntaxError, IndentationError):
        pass  # The compiler will say what is wrong.
    return inside


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


def run(mark: str, text: str, is_kept: bool, names: dict[str, Any]) -> Any:
    """Run a command of a line; the value is the lines that it printed if it is kept, or else what Jupyter shows."""
    name, _, rest = text.partition(" ")
    rest = rest.strip()
    if mark[0] == "!" or name in ("system", "sx"):
        command = _filled(text if mark[0] == "!" else rest, names)
        words = command.split()
        if words[:2] in (["pip", "install"], ["pip3", "install"], ["conda", "install"], ["uv", "pip"]):
            return _install(words, names)
        return _shell(command, is_kept or mark == "!!")
    if name in ("pip", "conda"):
        return _install([name, *rest.split()], names) if rest.startswith("install") else _shell(text, is_kept)
    if name == "cd":
        os.chdir(os.path.expanduser(_filled(rest, names) or "~"))
        print(os.getcwd())
    elif name in ("env", "set_env"):
        return _environment(_filled(rest, names))
    elif name == "pwd":
        return os.getcwd()
    elif name in ("ls", "mkdir"):
        return _shell(_filled(text, names), is_kept)
    elif name == "timeit":
        _time(rest, names)
    return None


def run_cell(name: str, rest: str, body: str) -> None:
    """Run the command of a whole cell: a script for the shell, or a file that it writes.

    Raises:
        subprocess.CalledProcessError: The script has failed.
    """
    if name in _SHELLS:
        _flush()
        subprocess.run([_SHELLS[name], *shlex.split(rest), "-s"], input=body.encode(), check=True)
        return
    words = shlex.split(rest)
    file = words[-1]
    print(f"{'Appending to' if '-a' in words else 'Overwriting' if os.path.exists(file) else 'Writing'} {file}")
    with open(file, "a" if "-a" in words else "w") as out:
        out.write(body)


def timed(call: Callable[[], Any] | None = None) -> Any:
    """Show how long a call takes, and return what it returns; without one, how long the rest of the cell takes."""
    if call is None:
        start_timer()
        return None
    begin = time.perf_counter()
    try:
        return call()
    finally:
        print(f"Wall time: {_in_words(time.perf_counter() - begin)}")


_started: list[float] = []
_asked: list[str] = []  # The packages that were installed at the code's request.
_folders: list[str] = []  # Where they are; the last one has all of them.


def start_timer() -> None:
    """Begin to measure the time of a cell."""
    _started[:] = [time.perf_counter()]


def end_timer() -> None:
    """Show how long the cell took, if that is measured."""
    if _started:
        print(f"Wall time: {_in_words(time.perf_counter() - _started.pop())}")


def _time(statement: str, names: dict[str, Any]) -> None:
    import timeit

    words = statement.split()
    while words and re.fullmatch(r"-[nr]\s*\d*", words[0]):  # How often: it is found out here.
        words = words[2:] if words[0] in ("-n", "-r") else words[1:]
    timer = timeit.Timer(" ".join(words), globals=names)
    count, seconds = timer.autorange()
    best = min([seconds, *timer.repeat(2, count)]) / count
    print(f"{_in_words(best)} per loop (best of 3 runs, {count} loops each)")


def _in_words(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _filled(command: str, names: dict[str, Any]) -> str:
    """A command with the values of `{expressions}` and of `$names` that are variables; others are the shell's."""

    def value(found: re.Match[str]) -> str:
        name, expression = found.groups()
        if found[0] == "$$":
            return "$"
        try:
            return str(names[name] if name else eval(expression, names))
        except Exception:  # It is meant for the shell.
            return found[0]

    return _GIVEN.sub(value, command)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # The code may have put anything there.
            pass


def _shell(command: str, is_kept: bool) -> list[str] | None:
    _flush()
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE if is_kept else None)
    vars(builtins)["_exit_code"] = done.returncode
    return done.stdout.decode(errors="replace").splitlines() if is_kept else None


def _environment(text: str) -> Any:
    name, separator, value = (part.strip() for part in (text.partition("=") if "=" in text else text.partition(" ")))
    if not name:
        return dict(os.environ)
    if not separator and not value:
        return os.environ.get(name)
    os.environ[name] = value
    print(f"env: {name}={value}")
    return None


def _install(words: list[str], names: dict[str, Any]) -> None:
    """Have packages installed, if code may; or else say that they are there, or what installs them.

    Raises:
        RuntimeError: Some are missing, and code may not install them.
    """
    from importlib import metadata

    there, missing = [], []
    words = words[words.index("install") + 1 :] if "install" in words else []
    for word in words:
        found = None if word[:1] == "-" else _NAME.match(word.strip("'\""))
        if found is None:
            continue
        try:
            there.append(f"{found[0]} {metadata.version(found[0])}")
        except metadata.PackageNotFoundError:
            missing.append(word.strip("'\""))
    install = names.get("_install_packages")
    if missing and install is not None:
        folder = install(_asked[:] + missing)
        _asked.extend(missing)
        sys.path[:] = [folder, *(each for each in sys.path if each not in _folders)]
        _folders.append(folder)
        importlib.invalidate_caches()
        os.environ["PYTHONPATH"] = folder  # For interpreters that the code starts.
        os.environ["PATH"] = os.pathsep.join([folder.rpartition("/lib/")[0] + "/bin", os.environ.get("PATH", "")])
        print(f"Installed: {', '.join(missing)}")
        return
    if missing:
        options = " ".join(f"--package {shlex.quote(each)}" for each in missing)
        raise RuntimeError(f"Code installs no packages here: packages={missing!r} ({options}) does, before it runs.")
    print(f"Already installed: {', '.join(there)}" if there else "Nothing to install.")
