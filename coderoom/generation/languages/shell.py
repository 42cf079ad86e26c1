"""`ShellLanguage`: functions in bash, which `Shell` calls from Python, in the session."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coderoom.generation.languages import CodeProblem, Language, binding_problem
from coderoom.generation.languages.python.declared import as_declared
from coderoom.generation.languages.python.pytest_file import pytest_files
from coderoom.generation.specs import FunctionSpec

if TYPE_CHECKING:
    from coderoom.judge import FunctionTest


class Shell:
    """Calls shell functions from Python. Its source also runs in sessions and beside exported tests (Python 3.8).

    If its state is `kept`, a call sees the variables that earlier ones have left, and is in a condition, where `set -e`
    does nothing. In a folder that would be empty, there is a file for each pattern in its arguments and its input.
    """

    def __init__(self, text: str = "", kept: bool = False) -> None:
        self._text, self._kept = text, kept
        self._state = self._left = ""

    def define(self, name: str, source: str, parameters: Sequence[str], result: str) -> Callable[..., Any]:
        """Add the code of a function (empty: the shell already has it); return the function, with its parameters."""
        _, printed, complaint = Shell(f"{self._text}{source}\n").run(f"declare -F {name}")
        if not printed.endswith(f"{name}\n"):
            raise SyntaxError(complaint or f"the code does not define {name}, or ends the shell")
        self._text += f"{source}\n"

        def call(*_given: Any, **_inputs: Any) -> Any:
            import shlex

            values = [*_given, *(_inputs.pop(each) for each in parameters if each in _inputs), *_inputs.values()]
            if values and isinstance(values[-1], list):
                values += values.pop()
            status, printed, complaint = self.run(" ".join([name, *(shlex.quote(self.word(each)) for each in values)]))
            if status:
                own = any(f"{each}{status}" in self._text for each in ("exit ", "return ", "="))
                lost = ": command not found\n" in complaint or (status in (126, 127) and not own)  # A mistake.
                kind = RuntimeError if lost else type("ExitStatus", (Exception,), {})
                raise kind(f"{status}: {complaint.strip()}")
            return self.read(printed, result)

        call.__wrapped__ = eval(f"lambda {', '.join(parameters)}: None")  # type: ignore[attr-defined]
        return call

    def word(self, value: Any) -> str:
        """An argument as text."""
        if not isinstance(value, (str, int, float, type(None))) or "\0" in str(value):
            raise TypeError("a shell function takes text and numbers, and a list as the last argument")
        return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    def read(self, printed: str, kind: str) -> Any:
        """Printed text as a value of a type; text that is not of that type stays text."""
        text = printed[:-1] if printed.endswith("\n") and kind != "None" else printed
        if kind.startswith("list["):
            return [self.read(line, kind[5:-1]) for line in text.split("\n")] if printed else []
        words: Any = {"bool": {"true": True, "false": False}, "None": {"": None}}.get(kind, {})
        if kind == "float" and (text != text.strip() or text[:1] == "+" or "_" in text):
            return text
        try:
            value: Any = int(text) if kind == "int" else float(text) if kind == "float" else words.get(text, text)
        except ValueError:
            return text
        return text if kind == "int" and str(value) != text else value

    def run(self, command: str) -> Any:
        """Run a command in a new shell; return its exit status, its standard output and its standard error."""
        import contextlib
        import os
        import pathlib
        import re
        import subprocess
        import sys
        import tempfile

        if self._left:
            raise RuntimeError(f"an earlier call has changed the shell (folder, options, traps, IFS): {self._left}")
        if os.urandom(1)[0] % 2:  # Otherwise, all shells might have an even number, or all an odd one.
            subprocess.run(["true"])
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(5)]
            script, given, printed, complaint, state = files
            buffer: Any = getattr(sys.stdin, "buffer", None)
            entered = buffer.read() if type(buffer).__name__ == "BytesIO" else b""  # A step of a test has set it.
            look, to = "pwd; set +o; shopt -p; trap -p; declare -p IFS; printf '\\0'", f">&{state.fileno()} 2>&1"
            lines = [self._text, "exec 2>/dev/null", self._state, f"{{ {look}; }} {to}; exec 2>&{complaint.fileno()}"]
            call = f"{command} <&{given.fileno()} {'&& coderoom_status=0 ||' if self._kept else ';'} coderoom_status=$?"
            lines += [call, f"{{ {look}; declare -p; declare -f; }} {to}; exit $coderoom_status\n"]
            for file, data in ((script, "\n".join(lines).encode("utf-8", "surrogateescape")), (given, entered)):
                file.write(data)
                file.seek(0)
            is_empty = self._kept and not next(os.scandir(), None)
            text = f"{command} {entered.decode('utf-8', 'replace')}" if is_empty else ""
            words = re.findall(r"[^\s/'\"]*[*?][^\s/'\"]*", text)
            planted = [pathlib.Path(re.sub("[*?]", "x", each)[:99]) for each in words]
            for path in planted:
                path.touch()
            descriptors = [each.fileno() for each in (given, complaint, state)]
            pipes: Any = {"stdin": script, "stdout": printed, "stderr": complaint, "pass_fds": descriptors}
            done = subprocess.run(["bash"], env={**os.environ, "LC_ALL": "C.UTF-8", "BASH_ENV": ""}, **pipes)
            for path in planted:
                path.unlink(missing_ok=True)
            for file in files:
                file.seek(0)
            texts = [each.read(1_000_001).decode("utf-8", "surrogateescape") for each in (printed, complaint, state)]
        if len(texts[0]) > 1_000_000:
            raise ValueError("more than 1,000,000 characters were printed")
        if self._kept and texts[2].count("\0") == 2:  # Without what bash itself sets, and folders, which differ.
            before, after, kept = texts[2].split("\0")
            self._left = "; ".join(sorted({*after.split("\n")} - {*before.split("\n")}))
            own = "BASHOPTS|BASH_VERSINFO|EUID|PPID|SHELLOPTS|UID|OLDPWD|PWD|TMPDIR"
            self._state = re.sub(rf"(?m)^declare -\S+ ({own})\b.*", "", kept)
        return done.returncode if done.returncode >= 0 else 128 - done.returncode, texts[0], texts[1]


_COMMANDS = (
    "alias bg bind break builtin case cd command compgen continue coproc declare do done echo elif else enable esac "
    "eval exec exit export false fc fg fi for function getopts hash help history if in jobs kill let local mapfile "
    "popd printf pushd pwd read readarray readonly return select set shift shopt source suspend test then time times "
    "trap true type typeset ulimit umask unalias unset until wait while"
)
_TYPE = r"str|int|float|bool"
_LIST = rf"list\[({_TYPE})\]"
_SIGNATURE = re.compile(rf"# \w+\(((\w+: ({_TYPE}), )*\w+: ({_TYPE}|{_LIST}))?\) -> ({_TYPE}|None|{_LIST})")
_FUNCTION = re.compile(r"(?:function\s+(\w+)\s*(?:\(\))?|(\w+)\s*\(\))\s*(\{|\(|$)")
_VARIABLE = re.compile(r"(?:(?:declare|export|readonly)(?: -\w+)* )?([A-Za-z_]\w*)\+?=")
_MISSING = "None if __import__('shutil').which('bash') else 'it has no bash'"


class ShellLanguage(Language):
    """Bash, tested in a session of the engine `cpython`: each call runs in a shell of its own."""

    name = "shell"
    labels = frozenset({"shell", "bash", "sh"})
    suffix = ".sh"
    reserved = frozenset(_COMMANDS.split())
    processes = 16
    as_declared = staticmethod(as_declared)
    ways = (
        "Bash, as functions that are sourced: at the top level there are only functions, variables and comments, each "
        "function ends with } in the first column, and directly above it stands the given comment with its signature. "
        "The inputs are the positional arguments, in the order of the spec: str, int, float or bool (true or false); "
        "only the last one may be a list of these, whose items are arguments of their own. The result is the standard "
        "output without its last newline: str, int, float, bool (true or false), None (nothing), or a list of these, "
        "one to a line. An error is an exit status other than 0, with a message on standard error. Tests expect it as "
        '"expected_error": "ExitStatus", and "error_message" is part of "STATUS: MESSAGE", such as "2: no such file". '
        "There is no network, and nobody to answer a prompt. Leave the folder, options, traps and IFS as they are, "
        "quote what may be a pattern, and do not rely on set -e."
    )

    def tests_file(self, module: str) -> str:
        """See `Language.tests_file`; the tests are for pytest."""
        return f"test_{module}.py"

    def spec_problem(self, spec: FunctionSpec) -> str | None:
        """See `Language.spec_problem`."""
        if _SIGNATURE.fullmatch(self._comment(spec)):
            return None
        text = "must be str, int, float or bool, the last one or a list of these"
        return f"the inputs of {spec.name!r} {text}, and its output one of these or None"

    def signature(self, spec: FunctionSpec) -> str:
        """See `Language.signature`; types are in a comment, which `define` reads."""
        return f"{self._comment(spec)}\n{spec.name}() {{"

    def _comment(self, spec: FunctionSpec) -> str:
        inputs = ", ".join(f"{each.name}: {each.type}" for each in spec.inputs)
        return f"# {spec.name}({inputs}) -> {spec.outputs.type}"

    def check(
        self, source: str, spec: FunctionSpec, *, taken: Mapping[str, str] | None = None, allowed_imports: Any = None
    ) -> list[CodeProblem]:
        """See `Language.check`; there are no imports, and syntax errors are found when the code is loaded."""
        found: list[tuple[int | None, str]] = []
        found += [(line, why or binding_problem(name, spec, taken)) for line, name, why in _top_level(source)]
        if self.names_defined(source).count(spec.name) != 1:
            found.append((None, f"it does not define the function {spec.name!r} once"))
        elif self._comment(spec) not in source.splitlines():
            found.append((None, f"the comment with its signature is missing: {self._comment(spec)}"))
        return [CodeProblem(line=line, text=text) for line, text in found if text]

    def names_defined(self, source: str) -> list[str]:
        """See `Language.names_defined`."""
        return [name for _, name, _ in _top_level(source) if name]

    def load(self, sources: Collection[str]) -> str:
        """See `Language.load`."""
        return f"{super().load(sources)}{_SUPPORT}coderoom_shell = Shell()\n{_MISSING}"

    def define(self, function: str, source: str) -> str:
        """See `Language.define`."""
        found = re.search(rf"^# {function}\((.*)\) -> (.+?)\s*$", source, re.MULTILINE)
        parameters = re.findall(r"(\w+):", found[1]) if found else []
        given = f"{function!r}, {source!r}, {parameters!r}, {found[2] if found else 'str'!r}"
        return f"globals()[{function!r}] = coderoom_shell.define({given})\n"

    def program(self, sources: Mapping[str, str]) -> str:
        """See `Language.program`."""
        return f"{_SUPPORT}coderoom_shell = Shell(kept=True)\n{''.join(self.define(*each) for each in sources.items())}"

    def error_matches(self, expected: str, types: Sequence[str], base: str) -> bool:
        """See `Language.error_matches`."""
        return expected == "ExitStatus" and list(types) == ["ExitStatus"]

    def write_module(self, implementations: Mapping[str, str], about: str) -> str:
        """See `Language.write_module`."""
        sources = [source.strip() for source in implementations.values()]
        return "\n\n".join(["# " + about.replace("\n", "\n# "), *sources]) + "\n"

    def write_tests(
        self, tests: Mapping[str, Sequence[FunctionTest]], module: str, specs: Sequence[FunctionSpec] = ()
    ) -> dict[str, str]:
        """See `Language.write_tests`; a Python module calls the functions, and a pytest file tests that module."""
        lines = [f'"""Calls the functions of {module}.sh. Written by CodeRoom."""\n\nimport pathlib\n{_SUPPORT}']
        lines.append("coderoom_shell = Shell(pathlib.Path(__file__).with_suffix('.sh').read_text())")
        for spec in specs:
            names = [each.name for each in spec.inputs]
            lines.append(f"{spec.name} = coderoom_shell.define({spec.name!r}, '', {names}, {spec.outputs.type!r})")
        files = pytest_files(tests, module, [spec.name for spec in specs])
        return {**files, f"{module}.py": "\n".join([*lines, ""])}


_SUPPORT = f"from typing import Any, Callable, Sequence\n\n\n{inspect.getsource(Shell)}\n\n"


def _top_level(source: str) -> Iterator[tuple[int, str, str]]:
    """The names that the top level of code defines and what is wrong with its other lines, each with its line."""
    end = ""
    for number, text in enumerate(source.splitlines(), 1):
        line = text.rstrip()
        if end:
            end = "" if line == end else end
        elif found := _FUNCTION.match(line):
            yield number, found[1] or found[2], ""
            end = ")" if found[3] == "(" else "}"
            end = "" if line.endswith(end) else end
        elif found := _VARIABLE.match(line):
            yield number, found[1], ""
            end = ")" if line.endswith("=(") else ""
        elif line and not line.startswith("#"):
            yield number, "", "only functions, variables and comments are allowed at the top level"
