"""The folder of skills: for each a file with its code and one with its tests, which a person can read and edit."""

from __future__ import annotations

import ast
import datetime
import fcntl
import hashlib
import inspect
import keyword
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from coderoom._util.files import read_inside, refusing, write_inside
from coderoom._util.text import visible
from coderoom.errors import RequestError

MOST_SKILLS = 1_000
MOST_CHARACTERS = 20_000
"""Of the code of a skill, and of its tests."""
_LONGEST_SIGNATURE, _LONGEST_SUMMARY = 200, 160
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")
_TAKEN = ("skills", "conftest")  # The latter pytest runs without being asked to.
_VERDICT = re.compile(r"# Judged (\S{1,20}) by \S+: (.{0,200})\. Digest: ([0-9a-f]{32})\n")
_TESTS = ".tests.py"  # No runner of tests collects it by itself.
_WRITABLE = "The skill cannot be saved"


@dataclass(frozen=True)
class Skill:
    """A function that code of a model has left for later.

    Attributes:
        name: The name of the function.
        code: Its source, with all that it needs.
        tests: Statements with assertions, or tests for pytest or unittest, that import it from a module of its name.
        judged: The day of the verdict that it has passed; empty if there is none on this code and these tests.
        strength: How strong the tests are, in words.
    """

    name: str
    code: str
    tests: str
    judged: str = ""
    strength: str = ""

    @property
    def digest(self) -> str:
        """The digest of code and tests. It shows an edit, and not who has made it."""
        return hashlib.sha256(f"{self.code}\0{self.tests}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    @property
    def signature(self) -> str:
        """Its name, parameters and result, in one line.

        Raises:
            ValueError: The code defines no function of this name, or is no Python.
        """
        return _signature_and_doc(self.name, self.code)[0]

    @property
    def doc(self) -> str:
        """Its docstring. It raises as `signature` does."""
        return _signature_and_doc(self.name, self.code)[1]

    @property
    def summary(self) -> str:
        """The first line of its docstring: plain text, whatever a model has written there."""
        return _one_line(self.doc.partition("\n")[0], _LONGEST_SUMMARY)


@lru_cache(2 * MOST_SKILLS)
def _signature_and_doc(name: str, code: str) -> tuple[str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(code).body
        found = [
            each for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name
        ]
        signatures = [_signature(each) for each in found[-1:]]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"The code of {name!r} is no Python that can be read: {error}.") from None
    if not found:
        raise ValueError(f"The code defines no function {name!r}.")
    return signatures[0], inspect.cleandoc(ast.get_docstring(found[-1]) or "")


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return _one_line(f"{start}{node.name}({ast.unparse(node.args)}){result}", _LONGEST_SIGNATURE)


def _one_line(text: str, most: int) -> str:
    """A text that cannot be taken for anything else in a prompt."""
    plain = " ".join(visible(text, exact=True).replace("`", "'").split())
    return plain if len(plain) <= most else f"{plain[: most - 3]}..."


def check_name(name: object) -> str:
    """The name, if a skill can have it.

    Raises:
        ValueError: It cannot.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ValueError(f"{name!r:.100} cannot be the name of a skill: take an identifier, as 'parse_rows'.")
    if name in sys.stdlib_module_names or name.startswith("test_") or name.endswith("_test") or name in _TAKEN:
        raise ValueError(f"{name!r} is the name of a module, or of tests; give the skill another one.")
    return name


class SkillFolder:
    """Reads and writes skills. Several processes may do so at the same time.

    Args:
        path: The folder, which is made with the first skill.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().absolute()

    def names(self) -> list[str]:
        """The names of all skills, in order."""
        with refusing(f"The skills in {self.path} cannot be read"):
            if not self.path.exists():
                return []
            found = sorted(each.stem for each in self.path.iterdir() if each.suffix == ".py")
        return [name for name in found if _is_name(name)][:MOST_SKILLS]

    def read_all(self) -> dict[str, Skill | str]:
        """All skills by their names, in order; a text is why one cannot be read."""
        found: dict[str, Skill | str] = {}
        for name in self.names():
            try:
                found[name] = self.read(name)
            except (LookupError, ValueError) as error:
                found[name] = str(error)
        return found

    def read(self, name: str) -> Skill:
        """Read a skill.

        Raises:
            LookupError: There is none of that name.
            ValueError: It cannot be the name of one, or the file is too long, or no plain file of text.
        """
        check_name(name)
        code = self._text(f"{name}.py")
        if code is None:
            raise LookupError(f"There is no skill {name!r}.")
        tests = self._text(f"{name}{_TESTS}") or ""
        found = _VERDICT.match(code)
        skill = Skill(name, code[found.end() :] if found else code, tests)
        if found and found[3] == skill.digest and _is_sound(skill):
            return replace(skill, judged=found[1], strength=found[2])
        return skill

    def _text(self, name: str) -> str | None:
        try:
            return read_inside(self.path, name, 5 * MOST_CHARACTERS).decode()
        except FileNotFoundError:
            return None
        except (OSError, RequestError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path / name} is no readable file of text of a skill: {error}") from None

    def write(self, skill: Skill, *, over: str | None) -> None:
        """Write a skill. The verdict comes last, so that half of it is one without a verdict.

        Args:
            skill: The skill.
            over: The digest of the skill of this name that it may replace; `None`: there must be none.

        Raises:
            ValueError: There is another one, or there are too many.
        """
        with self._alone():
            try:
                there = self.read(skill.name).digest
            except LookupError:
                there = None
                if len(self.names()) >= MOST_SKILLS:
                    raise ValueError(f"There are {MOST_SKILLS:,} skills already; nothing was saved.") from None
            if there not in (over, skill.digest):
                raise ValueError(f"There is another skill {skill.name!r} meanwhile: read it, and try again.")
            with refusing(_WRITABLE):
                write_inside(self.path, f"{skill.name}{_TESTS}", skill.tests.encode())
                head = f"# Judged {skill.judged} by {skill.name}{_TESTS}: {skill.strength}. Digest: {skill.digest}\n"
                write_inside(self.path, f"{skill.name}.py", (head + skill.code).encode())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from writing."""
        with refusing(_WRITABLE):
            self.path.mkdir(parents=True, exist_ok=True)
            folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def today() -> str:
    """The date of a verdict."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _is_sound(skill: Skill) -> bool:
    """Whether it can be in a prompt, whatever its first line says."""
    try:
        return bool(skill.summary)
    except ValueError:
        return False


def _is_name(name: str) -> bool:
    try:
        return bool(check_name(name))
    except ValueError:
        return False
