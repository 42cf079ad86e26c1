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
import resource
import shlex
import subprocess
import sys
import time
import tokenize
from typing import Any, Callable, NamedTuple

_LINE = re.compile(
    r"(?P<indent>[ \t]*)(?:(?P<target>[^\W\d][\w.,\[\] ]*?)[ \t]*=[ \t]*)?(?P<mark>%|!!?|\?\??)(?P<text>.*)"
)
_HELP = re.compile(r"([ \t]*)([\w.]+)(\?\??)[ \t]*")
# As IPython takes them without the mark, where they are the only line.
_UNMARKED = re.compile(r"(?:pip|conda|cd|ls|cat|cp|mv|rm|mkdir)[ \t]+[\w./~'\"-][^=\n]*(?:==[^=\n]*)*")
_CELL = re.compile(r"\s*%%(?P<name>\w+)[ \t]*(?P<rest>[^\n]*)\n?(?P<body>[\s\S]*)")
_GIVEN = re.compile(r"\$\$|\$([^\W\d]\w*)|\{([^{}\n]+)\}")
_INSTALL = re.compile(r"(?:uv +|\S*python[\d.]* +-m +)?(?:pip[\d.]*|conda) +install\b")
_NODE_INSTALL = re.compile(
    r"(?:^|(?<=&&)|(?<=;))\s*(?:npm +(?:install|i|add)|(?:yarn|pnpm) +add)\b((?:'[^']*'|\"[^\"]*\"|[^;&|#<>'\"])*)"
)
_OF_THE_SHELL = re.compile(r"[12&]?>|[|;&]")
_WITH_VALUES = (
    *("-c", "-f", "-i", "-t", "--constraint", "--extra-index-url", "--find-links", "--index-url", "--target"),
    *("-C", "-w", "--cache", "--loglevel", "--omit", "--prefix", "--registry", "--tag", "--workspace"),
)
_OPTION = re.compile(r"-(?:([nr])[ \t]*(\d+)|([oqct])|p[ \t]*\d+)(?:[ \t]+|$)")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_HERE = "__import__('coderoom_guest.magics', fromlist=['run']).%s(%s)"
_NOTHING_TO_DO = (
    *(
        "aimport",
        "alias",
        "autoreload",
        "autosave",
        "colors",
        "gui",
        "matplotlib",
        "pdb",
        "precision",
        "pylab",
        "xmode",
    ),
)
_OF_SHELL = ("cat", "cp", "ll", "ls", "mkdir", "mv", "rm", "rmdir")
_OF_LINES = (
    *("cd", "conda", "config", "env", "load_ext", "pip", "pwd", "reload_ext", "run", "set_env", "sx", "system", "time"),
    *("timeit", "who", "who_ls", "whos"),
)
_OF_CODE = ("capture", "time")
_OF_TEXTS = {"html": "HTML", "javascript": "Javascript", "js": "Javascript", "latex": "Latex", "markdown": "Markdown"}
_PROGRAMS = {"bash": "-s", "sh": "-s", "python": "-", "python3": "-", "perl": "-", "ruby": "-"}
_OF_CELLS = (*_OF_CODE, *_OF_TEXTS, *_PROGRAMS, "HTML", "file", "script", "svg", "SVG", "timeit", "writefile")


def unknown_in(code: str) -> str:
    """The first command of a notebook in a cell that cannot be run; empty if there is none."""
    cell = _CELL.fullmatch(code)
    if cell and cell["name"] not in _OF_CELLS:
        return f"%%{cell['name']}"
    if cell and cell["name"] in _OF_CODE:
        return unknown_in(cell["body"])
    for _, found in _commands(code) if cell is None else ():
        name, *rest = found["text"].split() or [""]
        is_known = name in (*_OF_LINES, *_OF_SHELL, *_NOTHING_TO_DO)
        if found["mark"] == "%" and (not is_known or (name.endswith("load_ext") and rest != ["autoreload"])):
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
    spaces = "{**globals(), **locals()}"
    if cell is not None and cell["name"] not in _OF_CODE:
        return before + _HERE % ("run_cell", f"{cell['name']!r}, {cell['rest']!r}, {cell['body']!r}, {spaces}")
    if cell is not None and cell["name"] == "time":
        return f"{before}{_HERE % ('start_timer', '')}\n{translate(cell['body'])}"
    if cell is not None:  # The value is not shown.
        return f"{before}{_HERE % ('capture', repr(cell['rest']))}\n{translate(cell['body'])}\nNone"
    if code.lstrip()[:4] == ">>> ":  # As copied from a session.
        return re.sub(r"(?m)^[ \t]*(?:>>>|\.\.\.) ?", "", code)
    if _UNMARKED.fullmatch(code.strip()):
        code = f"{before}%{code.strip()}"
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
        lines[number] = f"{found['indent']}{target}{_HERE % ('run', f'{text}, {bool(target)}, {spaces}')}"
    return "\n".join(lines)


def _commands(code: str) -> list[tuple[int, Any]]:
    """The lines that are commands, with their numbers from 0: not those inside of a text or of brackets."""
    lines = code.split("\n")
    found = [(number, _LINE.fullmatch(_HELP.sub(r"\1\3\2", line, 1))) for number, line in enumerate(lines)]
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
    if mark[0] == "?":
        explain(text.strip("? "), mark == "??", names)
    elif mark[0] == "!" or name in ("conda", "pip", "system", "sx"):
        command = _filled(text if mark[0] == "!" or name in ("conda", "pip") else rest, names)
        if _INSTALL.match(command):
            command, _, rest = command.partition("&&")
            _install(shlex.split(command, comments=True), names)
            command = rest.strip()
        command, missing = _install_by_npm(command, names)
        shown = _shell(command, is_kept or mark == "!!") if command else [] if is_kept else None
        if missing and vars(builtins)["_exit_code"]:
            raise _none_installed(missing)
        return shown
    elif name == "cd":
        words = [word for word in shlex.split(_filled(rest, names)) if word != "-q"]
        os.chdir(os.path.expanduser(words[0] if words else "~"))
        if "-q" not in rest.split():
            print(os.getcwd())
    elif name in ("env", "set_env"):
        return _environment(_filled(rest, names))
    elif name == "pwd":
        return os.getcwd()
    elif name in _OF_SHELL:
        return _shell(_filled("ls -l " + rest if name == "ll" else text, names), is_kept)
    elif name == "timeit":
        return _time(rest, "", names)
    elif name == "run":
        _run_file(shlex.split(_filled(rest, names)))
    elif name[:3] == "who":
        return _who(name)
    elif name == "config" and rest.startswith("InteractiveShell.ast_node_interactivity"):
        shell: Any = importlib.import_module("IPython.core.interactiveshell")
        shell.InteractiveShell.ast_node_interactivity = rest.partition("=")[2].strip(" '\"")
    return None


def run_cell(name: str, rest: str, body: str, names: dict[str, Any]) -> Any:
    """Run the command of a whole cell: a script for a program, a text that is shown, or a file that it writes.

    Raises:
        subprocess.CalledProcessError: The script has failed.
    """
    words = shlex.split(_filled(rest, names)) if name != "timeit" else []
    if name == "script":
        name, words = words[0], words[1:]
    if name == "timeit":
        return _time(rest, body, names)
    if name in ("writefile", "file"):
        file = words[-1]
        print(f"{'Appending to' if '-a' in words else 'Overwriting' if os.path.exists(file) else 'Writing'} {file}")
        with open(file, "a" if "-a" in words else "w") as out:
            out.write(body)
    elif name.lower() in (*_OF_TEXTS, "svg"):
        shown: Any = importlib.import_module("IPython.display")
        vars(builtins)["display"](getattr(shown, _OF_TEXTS.get(name.lower(), "SVG"))(body))
    else:
        _flush()
        command = [name, *words, _PROGRAMS[name]] if name in _PROGRAMS else [name, *words]
        done = subprocess.run(command, input=body.encode(), stdout=_piped(False))
        _print_captured(done.stdout)
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command)
    return None


def timed(call: Callable[[], Any] | None = None) -> Any:
    """Show how long a call takes, and return what it returns; without one, how long the rest of the cell takes."""
    start_timer()
    if call is None:
        return None
    try:
        return call()
    finally:
        _end_timer()


_started: list[tuple[float, Any]] = []
_captured: list[Captured] = []
_folders: list[str] = []  # Of packages; the last one has all of them.
_used: list[str] = []


def start_timer() -> None:
    """Begin to measure the time of a cell."""
    _started[:] = [(time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF))]


def _end_timer() -> None:
    if _started:
        begin, before = _started.pop()
        used = [now - earlier for now, earlier in zip(resource.getrusage(resource.RUSAGE_SELF)[:2], before[:2])]  # noqa: B905 (Python 3.8)
        user, system, total = map(_in_words, (*used, sum(used)))
        print(f"CPU times: user {user}, sys: {system}, total: {total}")
        print(f"Wall time: {_in_words(time.perf_counter() - begin)}")


def capture(options: str) -> None:
    """Keep what the rest of the cell prints from being shown; a variable gets it."""
    words = [word for word in options.split() if word[:1] != "-"]
    captured = Captured(sys.stdout, sys.stderr)
    _captured.append(captured)
    sys.stdout, sys.stderr = captured.out, captured.err
    if words:
        vars(sys.modules["__main__"])[words[0]] = captured


def end_cell() -> None:
    """Do what is left of the commands of a cell at its end."""
    _end_timer()
    while _captured:
        sys.stdout, sys.stderr = _captured.pop().before


class Captured:
    """What a cell has printed."""

    def __init__(self, *before: Any) -> None:
        self.before = before
        self.out, self.err = io.StringIO(), io.StringIO()

    @property
    def stdout(self) -> str:
        """Of standard output."""
        return self.out.getvalue()

    @property
    def stderr(self) -> str:
        """Of standard error."""
        return self.err.getvalue()

    def __str__(self) -> str:
        return self.stdout

    def show(self) -> None:
        """Print it."""
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)

    __call__ = show


class Times(NamedTuple):
    """What `%timeit -o` gives."""

    loops: int
    repeat: int
    best: float
    worst: float
    average: float
    stdev: float
    all_runs: list[float]

    def __str__(self) -> str:
        spread = f"{_in_words(self.average)} ± {_in_words(self.stdev)} per loop"
        runs, loops = f"{self.repeat} run{'s'[: self.repeat > 1]}", f"{self.loops:,} loop{'s'[: self.loops > 1]}"
        return f"{spread} (mean ± std. dev. of {runs}, {loops} each)"

    def __repr__(self) -> str:
        return f"<TimeitResult : {self}>"


def _time(line: str, body: str, names: dict[str, Any]) -> Times | None:
    import statistics
    import timeit

    count = repeat = 0
    shows, is_kept = True, False
    option = _OPTION.match(line)
    while option:
        line = line[option.end() :]
        count = int(option[2]) if option[1] == "n" else count
        repeat = int(option[2]) if option[1] == "r" else repeat
        shows, is_kept = shows and option[3] != "q", is_kept or option[3] == "o"
        option = _OPTION.match(line)
    timer = timeit.Timer(body or line, (line if body else "") or "pass", globals=names)
    count, repeat = count or timer.autorange()[0], repeat or 7
    runs = timer.repeat(repeat, count)
    each = [seconds / count for seconds in runs]
    found = Times(count, repeat, min(each), max(each), statistics.fmean(each), statistics.pstdev(each), runs)
    if shows:
        print(found)
    return found if is_kept else None


def _run_file(words: list[str]) -> None:
    """Run a file of Python, whose variables are those of the session then."""
    import runpy

    words = [word for word in words if word not in ("-i", "-e", "-n", "-t")]
    main, arguments = vars(sys.modules["__main__"]), sys.argv
    sys.argv = words
    sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
    try:
        made = runpy.run_path(words[0], run_name="__main__")
    except SystemExit as error:
        if error.code:
            raise
    else:
        main.update({name: value for name, value in made.items() if name[:2] != "__"})
    finally:
        sys.argv = arguments
        del sys.path[0]


def _who(name: str) -> list[str] | None:
    """The variables of the session."""
    there = {key: value for key, value in vars(sys.modules["__main__"]).items() if key[:1] != "_"}
    names = sorted(there)
    if name == "who_ls":
        return names
    if not names:
        print("Interactive namespace is empty.")
    elif name == "who":
        print(*names, sep="\t ")
    else:
        rows = [
            ("Variable", "Type", "Data/Info"),
            *((each, type(there[each]).__name__, str(there[each])) for each in names),
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        for row in rows:
            print(f"{row[0]:<{widths[0]}}   {row[1]:<{widths[1]}}   {' '.join(row[2].split())[:60]}")
    return None


def explain(name: str, is_detailed: bool, names: dict[str, Any]) -> None:
    """Print what `name?` shows, and the source, if there is one and it is asked for."""
    import inspect

    try:
        value = eval(name, names)
    except Exception:
        print(f"Object `{name}` not found.")
        return
    try:
        print(f"Signature: {name}{inspect.signature(value)}")
    except (TypeError, ValueError):
        print(f"Type: {type(value).__name__}")
    try:
        if is_detailed:
            print(f"Source:\n{inspect.getsource(value)}")
            return
    except (TypeError, OSError):
        pass
    print(f"Docstring: {inspect.getdoc(value) or '<no docstring>'}")


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
    if command.startswith(("pip ", "pip3 ")):  # The one that knows the packages of this interpreter.
        command = f"{shlex.quote(sys.executable)} -m {command.replace('pip3', 'pip', 1)}"
    done = subprocess.run(["sh", "-c", command], stdout=_piped(is_kept))
    vars(builtins)["_exit_code"] = done.returncode
    if is_kept:
        return done.stdout.decode(errors="replace").splitlines()
    _print_captured(done.stdout)
    return None


def _piped(is_kept: bool) -> int | None:
    """Where what a program prints goes."""
    return subprocess.PIPE if is_kept or _captured else None


def _print_captured(data: bytes | None) -> None:
    if data:
        sys.stdout.write(data.decode(errors="replace"))


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
    for word in _wanted(words[words.index("install") + 1 :]):
        name, _, version = word.partition("==")
        try:
            found = metadata.version(_NAME.match(name)[0])  # type: ignore[index]
        except (metadata.PackageNotFoundError, TypeError):
            found = ""
        if found and version.strip() in ("", found):
            there.append(f"{name.strip()} {found}")
        else:
            missing.append(word)
    install = names.get("_install_packages")
    if missing and install is not None:
        use_packages(**install(missing))
        print(f"Installed: {', '.join(missing)}")
        return
    if missing:
        raise _none_installed(missing)
    print(f"Already installed: {', '.join(there)}" if there else "Nothing to install.")


def _none_installed(packages: list[str]) -> RuntimeError:
    options = " ".join(f"--package {shlex.quote(each)}" for each in packages)
    return RuntimeError(f"Code installs no packages here: packages={packages!r} ({options}) does, before it runs.")


def _install_by_npm(command: str, names: dict[str, Any]) -> tuple[str, list[str]]:
    """A command with what is left to do after its packages of npm were installed; and those that code may not install.

    With a network, npm may do that.
    """
    install = names.get("_install_packages")
    left = []
    for found in list(_NODE_INSTALL.finditer(command)):
        wanted = _wanted(shlex.split(found[1], comments=True))
        missing = [
            f"npm:{each}" for each in wanted if not os.path.isdir(os.path.join(os.environ.get("NODE_PATH", ""), each))
        ]
        if missing and install is not None:
            use_packages(**install(missing))
            said, missing = "Installed", []
        else:
            said = "Already installed"
        left += missing
        if wanted and not missing:
            command = command.replace(found[0], " echo " + shlex.quote(f"{said}: {', '.join(wanted)}"), 1)
    return command, left


def use_packages(packages: str, env: dict[str, str], programs: list[str]) -> None:
    """Import packages from a folder, instead of those folders that were used before; programs find theirs, too."""
    from .programs import extend_environment

    if _used == [packages, *programs]:
        return
    _used[:] = [packages, *programs]
    if packages and packages not in _folders:
        sys.path[:] = [packages, *(each for each in sys.path if each not in _folders)]
        _folders.append(packages)
        importlib.invalidate_caches()
    extend_environment(env, programs)


def _wanted(words: list[str]) -> list[str]:
    """The packages among the arguments of an installer, up to what is the shell's."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        if _OF_THE_SHELL.match(word):
            break
        if word in ("-r", "--requirement"):
            with open(next(rest)) as file:
                found += [line.split(" #")[0].strip() for line in file if line.strip()[:1] not in ("", "#", "-")]
        elif word in _WITH_VALUES:
            next(rest, None)
        elif word[:1] != "-":
            found.append(word)
    return found
