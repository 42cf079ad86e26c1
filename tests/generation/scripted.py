"""A model that answers from a script, by what it is asked for and for which function."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from coderoom.generation import Message, Reply

from ..support.openai_server import Request, Step

__all__ = ["ScriptedModel", "function", "test"]


def function(name: str, *inputs: str, needs: Sequence[str] = (), purpose: str = "Something.") -> dict[str, Any]:
    return {
        "name": name,
        "purpose": purpose,
        "inputs": [{"name": each, "type": "int"} for each in inputs or ("x",)],
        "outputs": {"type": "int", "description": ""},
        "dependencies": list(needs),
        "complexity": "simple",
    }


def test(name: str, expected: Any, /, **inputs: Any) -> dict[str, Any]:
    return {"name": name, "inputs": inputs, "expected_output": expected}


test.__test__ = False  # type: ignore[attr-defined]


class ScriptedModel:
    """Answers from a script. The last answer of a kind is given again and again; an exception is raised.

    Args:
        specs: The functions, or answers to that question in their order.
        tests: The tests of each function, or answers.
        code: The code of each function: one answer, or several.
        repair: The answers to questions for repair of each function.
        seconds: How long each answer takes.
    """

    def __init__(
        self,
        specs: Sequence[Any],
        tests: Mapping[str, Sequence[Any]],
        code: Mapping[str, Any],
        repair: Mapping[str, Any] | None = None,
        *,
        seconds: float = 0,
        name: str = "scripted",
    ) -> None:
        self.name = name
        self.asked: list[tuple[str, str]] = []
        self.questions: list[str] = []
        self.forms: list[type[BaseModel] | None] = []
        self.most_at_once = 0
        self._at_once = 0
        self._seconds = seconds
        whole = all(isinstance(each, dict) for each in specs)
        self._left: dict[tuple[str, str], list[Any]] = {
            ("specs", ""): [{"function_specs": list(specs)}] if whole else list(specs)
        }
        for name_, cases in tests.items():
            plain = all(isinstance(each, dict) and "tests" not in each for each in cases)
            self._left["tests", name_] = [{"tests": list(cases)}] if plain else list(cases)
        for step, answers in (("code", code), ("repair", repair or {})):
            for name_, each in answers.items():
                self._left[step, name_] = list(each) if isinstance(each, list) else [each]

    def count(self, step: str, function: str = "") -> int:
        return self.asked.count((step, function))

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        question = next(each.content for each in messages if each.role == "user")
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(self._seconds)
        finally:
            self._at_once -= 1
        self.questions.append("\n".join(each.content for each in messages))
        self.forms.append(form)
        answer = self._next(question)
        if isinstance(answer, BaseException):
            raise answer
        return answer if isinstance(answer, Reply) else Reply(answer, 100, 10)

    def respond(self, request: Request) -> Step | str:
        """The answer to what came over HTTP; what a server can do else than answer may stand in the script too."""
        question = next(str(each["content"]) for each in request.messages if each["role"] == "user")
        self.questions.append(question)
        answer: Step | str = self._next(question)
        return answer

    def _next(self, question: str) -> Any:
        key = self._kind(question)
        self.asked.append(key)
        answers = self._left.get(key) or ["I have nothing to say."]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, dict | list):
            return json.dumps(answer)
        if key[0] == "code" and isinstance(answer, str) and "```" not in answer:
            return f"```python\n{answer}\n```"
        return answer

    def _kind(self, question: str) -> tuple[str, str]:
        if "Name the functions" in question:
            return "specs", ""
        found = re.search(r"[Ff]unction `(\w+)`", question)
        assert found is not None, question
        if "Write the tests" in question or "Write more tests" in question:
            return "tests", found[1]
        return ("repair" if "Find out which is wrong" in question else "code"), found[1]
