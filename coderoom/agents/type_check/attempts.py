"""`TypeCheck`: checks the code of a `CodeActAgent` before it runs; surely wrong code becomes a failed attempt."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Sequence
from copy import copy

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_core.models import LLMMessage

from coderoom._util.tasks import in_thread
from coderoom._util.text import bound_output, counted
from coderoom.agents.attempt import Attempt
from coderoom.agents.code_session import CodeActSession
from coderoom.agents.selection import Selection
from coderoom.agents.type_check.checker import checker_program, run_checker
from coderoom.agents.type_check.mistakes import Known, Mistakes, show_mistakes
from coderoom.agents.type_check.names import read_names
from coderoom.agents.type_check.stubs import host_stubs, session_stubs
from coderoom.blocks import normalize_language
from coderoom.outcome import Outcome
from coderoom.sandbox import EDITING_HELP, PROCESSES_HELP, HostFunction, OnOutput
from coderoom.steps import once

_OFFERED = frozenset(re.findall(r"\b(\w+)\(", f"{EDITING_HELP} {PROCESSES_HELP}"))
_HOST, _SESSION = "coderoom_functions", "coderoom_session"
_NOT_RUN = "Nothing was run: a check before the run has found {}. Correct the code, and write all of it again.\n\n"


class TypeCheck:
    """Runs the code of a session, but none with calls that are surely wrong.

    Args:
        max_output_chars: The most characters of what is found.

    Raises:
        MissingDependencyError: The type checker is not installed.
    """

    def __init__(self, max_output_chars: int) -> None:
        checker_program()
        self._max_output_chars = max_output_chars
        # What code that has failed may have bound, and whether that can be told.
        self._maybe: set[str] = set()
        self._is_open = False
        self._failures = 0

    async def run(
        self,
        session: CodeActSession,
        number: int,
        selection: Selection,
        context: Sequence[LLMMessage],
        cancellation_token: CancellationToken,
        on_output: OnOutput,
    ) -> Attempt:
        """Check the blocks of a reply, and run them in the session if nothing is wrong.

        Nothing is checked where it is not known what has been bound: in a session that other agents use too, and after
        code of a person that has failed.
        """
        if session.shared is not None or session.failures > self._failures:
            return await session.run(number, selection, context, cancellation_token, on_output)
        functions, before = await session.find_functions(), session.code

        async def find() -> str:
            return await in_thread(self.find, selection.blocks, before, functions)

        request = {"blocks": hashlib.sha256(repr(selection.blocks).encode("utf-8", "replace")).hexdigest()[:16]}
        if found := await once("types", request, find, str, str):
            return Attempt(Outcome.ERROR, 1, output=found, number=number, selection=selection, stopped_by_check=True)
        attempt = await session.run(number, selection, context, cancellation_token, on_output)
        if attempt.outcome is not Outcome.OK:
            self._note_failed(attempt.blocks)
        self._failures = session.failures
        return attempt

    def copy(self) -> TypeCheck:
        """The same for a branch, which knows of its own failures."""
        made = copy(self)
        made._maybe = set(self._maybe)
        return made

    def _note_failed(self, blocks: Sequence[CodeBlock]) -> None:
        for code in _python(blocks):
            read = read_names(code)
            self._is_open = self._is_open or (read is not None and read.is_open)
            self._maybe |= set() if read is None else set(read.module.bound)

    def find(self, blocks: Sequence[CodeBlock], before: Sequence[CodeBlock], functions: Sequence[HostFunction]) -> str:
        """What is surely wrong, for a model; empty if nothing is, or if that cannot be told.

        Args:
            blocks: What is to run.
            before: What has run well in the session.
            functions: The functions of the host.
        """
        parts = [read_names(code) for code in _python(blocks)]
        code = "\n".join(each.code for each in parts if each is not None)
        names = None if None in parts else read_names(code)
        if names is None:
            return ""
        known = self._known(before, functions)
        loaded = {use.node.id for use in names.uses.values()}
        ours = [each for name, each in known.functions.items() if name in loaded and name not in known.bound]
        defined = [each for name, each in known.definitions.items() if name in loaded]
        imports = [f"from {_HOST} import {each.name}" for each in ours]
        imports += [f"from {_SESSION} import {each.name}" for each in defined]
        findings = run_checker("; ".join(imports), code, {_HOST: host_stubs(ours), _SESSION: session_stubs(defined)})
        mistakes = Mistakes(names, known).among(findings)
        if not mistakes:
            return ""
        places = [
            f"Line {line}" if len(blocks) == 1 else f"Block {number}, line {line}"
            for number, block in enumerate(blocks, 1)
            for line in range(1, block.code.count("\n") + 2)
            if _is_python(block)
        ]
        text = _NOT_RUN.format(counted(len(mistakes), "error")) + show_mistakes(mistakes, code.split("\n"), places)
        return bound_output(text, self._max_output_chars)

    def _known(self, before: Sequence[CodeBlock], functions: Sequence[HostFunction]) -> Known:
        bound, is_open = {*self._maybe, *_OFFERED}, self._is_open
        definitions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        for code in _python(before):
            names = read_names(code)
            is_open = is_open or names is None or names.is_open
            for name in () if names is None else names.module.bound:
                bound.add(name)
                definitions.pop(name, None)
                if names is not None and name in names.definitions and name not in self._maybe:
                    definitions[name] = names.definitions[name]
        offered = {each.name: each for each in functions}
        return Known(offered, definitions, frozenset(bound - (offered.keys() & _OFFERED)), is_open)


def _is_python(block: CodeBlock) -> bool:
    return normalize_language(block.language) == "python"


def _python(blocks: Sequence[CodeBlock]) -> list[str]:
    return [block.code for block in blocks if _is_python(block)]
