"""`CompiledLanguage`: what languages with a compiler share. `CompiledProgram` calls their functions from Python.

A comment above each function has its signature with types of Python; `check` demands it, and `define` reads it.
"""

from __future__ import annotations

import inspect
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from coderoom.generation.languages import MARK, CodeProblem, Language, binding_problem, import_problem
from coderoom.generation.languages.python.declared import as_declared
from coderoom.generation.languages.python.pytest_file import pytest_files
from coderoom.generation.specs import FunctionSpec

if TYPE_CHECKING:
    from coderoom.judge import FunctionTest


class CompiledProgram:
    """Calls functions of a compiled program. Its source also runs in sessions and beside exported tests (Python 3.8).

    `how` has the `files` that are compiled beside the code (`LINKS`: what `link` has made for them), the name of its
    `source`, the commands to `build` it (`fast`: without checks) and to `run` it, and the files that are `built`. If
    the state is `kept`, all calls are in one process. Each process gets a secret that the code does not know, without
    which an answer does not count.
    """

    def __init__(self, how: Any, text: str = "", kept: bool = False) -> None:
        self._how, self._text, self._kept = how, text, kept
        self._parts: Any = ([how["head"]], [], [])
        self._built: Any = {}
        self._running: Any = None
        self.left = ""

    def define(
        self, name: str, imports: Any, body: str, link: Any, inputs: Any, result: str, build: bool = True
    ) -> Callable[..., Any]:
        """Add the code of a function (empty: the text has it); return the function, with its parameters."""
        before = [[*each] for each in self._parts]
        self._parts[0].extend(each for each in imports if each not in self._parts[0])
        self._parts[1].append(body)
        self._parts[2].append(link)
        self._built = {}
        if build:
            try:
                self._build()
            except SyntaxError:
                self._parts = before
                raise

        def call(*_given: Any, **_inputs: Any) -> Any:
            kinds = dict(inputs)
            given = dict(zip(kinds, _given), **_inputs)  # noqa: B905 (Python 3.8)
            said = self._ask(name, [self._write(given[each], kinds[each]) for each in kinds])
            for each, data in zip(kinds, said["after"]):  # noqa: B905 (Python 3.8)
                old, new = given[each], self._read(data, kinds[each])
                if isinstance(old, (list, dict)) and old != new:
                    old.clear()
                    old.extend(new) if isinstance(old, list) else old.update(new)
            return self._read(said["value"], result)

        call.__wrapped__ = eval(f"lambda {', '.join(each for each, _ in inputs)}: None")  # type: ignore[attr-defined]
        return call

    def _write(self, value: Any, kind: str) -> Any:
        """A value of a declared type as JSON."""
        if kind.endswith(" | None"):
            return None if value is None else self._write(value, kind[:-7])
        if kind.startswith("list[") and isinstance(value, (list, tuple)):
            return [self._write(each, kind[5:-1]) for each in value]
        if kind.startswith("dict[") and isinstance(value, dict) and all(isinstance(each, str) for each in value):
            return {key: self._write(each, kind[10:-1]) for key, each in value.items()}
        if kind == "float" and type(value) in (int, float):
            value = float(value)
            return value if value - value == 0 else {"$float": str(value)}
        if kind == "int" and type(value) is int and abs(value) < 2 ** self._how["bits"]:
            return value
        if type(value).__name__ == kind and kind in ("str", "bool"):
            return value
        raise TypeError(f"the input {value!r:.80} is not of the type {kind}, or too large for it")

    def _read(self, data: Any, kind: str) -> Any:
        """A value of a declared type from JSON."""
        if kind.endswith(" | None"):
            return None if data is None else self._read(data, kind[:-7])
        if kind.startswith("list[") and isinstance(data, list):
            return [self._read(each, kind[5:-1]) for each in data]
        if kind.startswith("dict[") and isinstance(data, dict):
            return {key: self._read(each, kind[10:-1]) for key, each in data.items()}
        if kind == "float" and (type(data) in (int, float) or (isinstance(data, dict) and [*data] == ["$float"])):
            return float(data["$float"] if isinstance(data, dict) else data)
        if kind == "int" and type(data) is float and data.is_integer():
            return int(data)
        if (data is None and kind == "None") or (type(data).__name__ == kind and kind in ("str", "int", "bool")):
            return data
        raise RuntimeError(f"it returned {data!r:.80}, which is not of the type {kind}")

    def _build(self) -> None:
        import os
        import pathlib
        import subprocess
        import tempfile

        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            text = self._text or "\n".join([*self._parts[0], *self._parts[1]])
            inside, outside = [" ".join(each) for each in zip(*self._parts[2])]  # noqa: B905 (Python 3.8)
            secret = "p" + os.urandom(8).hex()  # The code cannot name this package.
            files = {
                each.replace("SECRET", secret): content.replace("SECRET", secret).replace("LINKS", outside)
                for each, content in self._how["files"].items()
            }
            for each, content in {**files, self._how["source"]: f"{inside}{text}\n"}.items():
                (folder / each).parent.mkdir(exist_ok=True)
                (folder / each).write_bytes(content.encode("utf-8", "surrogatepass"))
            env = {**os.environ, "HOME": name, **{key: name + each for key, each in self._how["folders"].items()}}
            done = subprocess.run(
                self._how["fast" if self._kept and "fast" in self._how else "build"],
                cwd=name,
                env={**env, **self._how["env"]},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            said = done.stdout.decode("utf-8", "replace").replace(name + "/", "").strip()
            if done.returncode:
                raise SyntaxError(said[:4000] or f"the compiler ended with the status {done.returncode}")
            self._built = {each: (folder / each).read_bytes() for each in self._how["built"]}

    def _ask(self, name: str, inputs: Any) -> Any:
        import contextlib
        import json
        import os
        import sys

        if not self._built:
            self._build()
        running = self._running or self._start()
        process, requests, answers, entered, printed, folder, secret = running
        buffer: Any = getattr(sys.stdin, "buffer", None)
        entered.seek(0)
        entered.truncate()
        entered.write(buffer.read() if type(buffer).__name__ == "BytesIO" else b"")  # A step of a test has set it.
        entered.seek(0)
        places = [each.seek(0, 2) for each in printed]
        request = json.dumps({"function": name, "inputs": inputs, "folder": os.getcwd()}).encode() + b"\n"  # noqa: PTH109
        answer = b""
        try:
            requests.write(request)
            requests.flush()
            answer = answers.readline(16_000_000)
            answer = answer[len(secret) :] if answer.startswith(secret) else b""
        except BrokenPipeError:
            pass
        self._running = running if self._kept and answer else None
        if process is not None:
            process.kill()
            process.wait()
        texts = []
        for number, stream in enumerate((sys.stdout, sys.stderr)):
            printed[number].seek(places[number])
            texts.append(printed[number].read(1_000_001).decode("utf-8", "replace"))
            stream.write(texts[-1])
        if not self._running:
            with contextlib.suppress(BrokenPipeError):
                requests.close()
            for each in (answers, entered, *printed):
                each.close()
            folder.cleanup()
        if max(map(len, texts)) > 1_000_000:
            raise ValueError("more than 1,000,000 characters were printed")
        if not answer.endswith(b"\n"):
            why = texts[1].strip().splitlines() or ["it gave no answer"]
            raise RuntimeError(f"the code ended its process, or returned too much: {why[0][:1000]}")
        data = json.loads(answer)
        self.left = data.get("left") or self.left
        if "value" in data:
            return data
        kind: Any = Exception
        for each in reversed(data["error"]):
            kind = type(each, (kind,), {})
        raise (kind if data["error"] else RuntimeError)(data["message"])

    def _start(self) -> Any:
        import os
        import pathlib
        import subprocess
        import tempfile

        folder = tempfile.TemporaryDirectory()
        for each, content in self._built.items():
            path = pathlib.Path(folder.name, each)
            path.write_bytes(content)
            path.chmod(0o700)
        entered, *printed = [tempfile.TemporaryFile(buffering=0) for _ in range(3)]  # noqa: SIM115
        there, requests = os.pipe()
        answers, here = os.pipe()
        if os.urandom(1)[0] % 2:  # Otherwise, all processes might have an even number, or all an odd one.
            subprocess.run(["true"])
        run = [each.replace("{}", folder.name) for each in self._how["run"]]
        options: Any = {"stdin": entered, "stdout": printed[0], "stderr": printed[1], "pass_fds": [there, here]}
        options["env"] = {**os.environ, "LC_ALL": "C.UTF-8", "NODE_OPTIONS": "", "NODE_PATH": ""}
        process = None
        # A kept process is no child of this one: a child would count as one that the program has left behind.
        starter = os.fork() if self._kept else 0
        if not starter:
            try:
                process = subprocess.Popen([*run, str(there), str(here), str(int(self._kept))], **options)
            finally:
                if self._kept:
                    os._exit(0)
        else:
            os.waitpid(starter, 0)
        os.close(there)
        os.close(here)
        secret = os.urandom(16).hex().encode()
        os.write(requests, secret)
        return process, os.fdopen(requests, "wb"), os.fdopen(answers, "rb"), entered, printed, folder, secret


_SUPPORT = f"from typing import Any, Callable\n\n\n{inspect.getsource(CompiledProgram)}\n\n"
_PLAIN = ("str", "int", "float", "bool")


class CompiledLanguage(Language):
    """A language whose functions are compiled in the session, and called in a process of their own.

    Attributes:
        how: What `CompiledProgram` needs.
        types: What the types of Python are called; `list`, `dict` and `optional` have `{}` for the type inside.
        command: The command that must be there, and the package of Debian that has it.
    """

    comment = "//"
    processes = 8
    as_declared = staticmethod(as_declared)
    how: ClassVar[dict[str, Any]]
    types: ClassVar[dict[str, str]]
    commands: ClassVar[dict[str, str]]

    @abstractmethod
    def split(self, source: str) -> tuple[list[str], str]:
        """The imports of code, and the rest."""

    @abstractmethod
    def imported(self, line: str) -> str:
        """The module in an import."""

    @abstractmethod
    def link(self, name: str, inputs: Sequence[tuple[str, str]], result: str) -> tuple[str, str]:
        """Code that makes a function callable: before the program, and in `files`. It demands the exact types."""

    @abstractmethod
    def header(self, name: str, inputs: Sequence[tuple[str, str]], result: str) -> str:
        """The line that the definition of a function begins with."""

    def type_of(self, declared: str) -> str:
        """What a type of Python is called; empty if there is none."""
        kind, inner = declared.strip(), ""
        if kind in self.types:
            return self.types[kind]
        for name, pattern in (("optional", r"(.+) \| None"), ("list", r"list\[(.+)\]"), ("dict", r"dict\[str, (.+)\]")):
            if (found := re.fullmatch(pattern, kind)) and (inner := self.type_of(found[1])):
                return self.types[name].format(inner)
        return ""

    def tests_file(self, module: str) -> str:
        """See `Language.tests_file`; the tests are for pytest."""
        return f"test_{module}.py"

    def spec_problem(self, spec: FunctionSpec) -> str | None:
        """See `Language.spec_problem`."""
        declared = [*(each.type for each in spec.inputs), *({spec.outputs.type} - {"None"})]
        wrong = [each for each in declared if not self.type_of(each) or each != each.strip()]
        known = "str, int, float, bool, list[T], dict[str, T] or T | None"
        return f"the types of {spec.name!r} must be {known}, and not {wrong[0]!r:.80}" if wrong else None

    def signature(self, spec: FunctionSpec) -> str:
        """See `Language.signature`; types of Python are in a comment, which `define` reads."""
        inputs = [(each.name, each.type) for each in spec.inputs]
        return f"{self._comment(spec)}\n{self.header(spec.name, inputs, spec.outputs.type)}"

    def _comment(self, spec: FunctionSpec) -> str:
        inputs = ", ".join(f"{each.name}: {each.type}" for each in spec.inputs)
        return f"// {spec.name}({inputs}) -> {spec.outputs.type}"

    def check(
        self,
        source: str,
        spec: FunctionSpec,
        *,
        taken: Mapping[str, str] | None = None,
        allowed_imports: Collection[str] | None = None,
    ) -> list[CodeProblem]:
        """See `Language.check`; syntax and types are checked when the code is compiled."""
        names = self.names_defined(source)
        found = [binding_problem(name, spec, taken) for name in names]
        found += [f"{name!r} is reserved; use another name" for name in names if name in self.reserved]
        for module in map(self.imported, self.split(source)[0]):
            found.append(import_problem(module, module.split("/"), allowed_imports, "/"))
        if names.count(spec.name) != 1:
            found.append(f"it does not define the function {spec.name!r} once, at the beginning of a line")
        elif self._comment(spec) not in source.splitlines():
            found.append(f"the comment with its signature is missing: {self._comment(spec)}")
        return [CodeProblem(line=None, text=text) for text in found if text]

    def load(self, sources: Collection[str]) -> str:
        """See `Language.load`."""
        lacks = f"""\
__import__("functools").reduce(lambda said, each: said or (
    None if __import__("shutil").which(each[0]) else "it has no %s; install it with apt-get install %s" % each
), {[*self.commands.items()]!r}, None)"""
        return f"{super().load(sources)}{_SUPPORT}coderoom_program = CompiledProgram({self.how!r})\n{lacks}"

    def define(self, function: str, source: str) -> str:
        """See `Language.define`."""
        return self._define(function, source, build=True)

    def _define(self, function: str, source: str, *, build: bool) -> str:
        found = re.search(rf"^// {function}\((.*)\) -> (.+?)\s*$", source, re.MULTILINE)
        inputs = re.findall(r"(\w+): ((?:[^,\[]|\[(?:[^\[\]]|\[[^\]]*\])*\])+)", found[1]) if found else []
        result = found[2] if found else "None"
        given: Any = *self.split(source), self.link(function, inputs, result), inputs, result
        return f"globals()[{function!r}] = coderoom_program.define({function!r}, *{given!r}, build={build})\n"

    def program(self, sources: Mapping[str, str]) -> str:
        """See `Language.program`."""
        parts = "".join(self._define(*each, build=False) for each in sources.items())
        return f"{_SUPPORT}coderoom_program = CompiledProgram({self.how!r}, kept=True)\n{parts}"

    def marked(self, text: str) -> str:
        """See `Language.marked`; the files with tests are Python."""
        return super().marked(text) if text.startswith("//") else f"# {MARK}.\n{text}"

    def error_matches(self, expected: str, types: Sequence[str], base: str) -> bool:
        """See `Language.error_matches`."""
        return expected in types

    def write_module(self, implementations: Mapping[str, str], about: str) -> str:
        """See `Language.write_module`."""
        parts = [self.split(source) for source in implementations.values()]
        imports = dict.fromkeys(line for lines, _ in parts for line in lines)
        lines = ["// " + about.replace("\n", "\n// "), self.how["head"], *imports]
        return "\n".join([*(each for each in lines if each), "", "\n\n".join(body.strip() for _, body in parts), ""])

    def write_tests(
        self, tests: Mapping[str, Sequence[FunctionTest]], module: str, specs: Sequence[FunctionSpec] = ()
    ) -> dict[str, str]:
        """See `Language.write_tests`; a Python module calls the functions, and a pytest file tests that module."""
        lines = [
            f'"""Calls the functions of {module}{self.suffix}. Written by CodeRoom."""\n\nimport pathlib\n{_SUPPORT}'
        ]
        text = f"pathlib.Path(__file__).with_suffix({self.suffix!r}).read_text()"
        lines.append(f"coderoom_program = CompiledProgram({self.how!r}, {text})")
        for spec in specs:
            inputs, result = [(each.name, each.type) for each in spec.inputs], spec.outputs.type
            given: Any = spec.name, [], "", self.link(spec.name, inputs, result), inputs, result, False
            lines.append(f"{spec.name} = coderoom_program.define(*{given!r})")
        files = pytest_files(tests, module, [spec.name for spec in specs])
        return {**files, f"{module}.py": "\n".join([*lines, ""])}
