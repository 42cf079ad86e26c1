"""smolagents: a `PythonExecutor` whose code runs in the sandbox, and whose tools run on the host.

    with SandboxExecutor() as executor:
        agent = CodeAgent(tools=[...], model=model, executor=executor, additional_authorized_imports=["*"])
        agent.run("...")

Sandboxed code may import any module, which `["*"]` tells the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from coderoom.integrations.tool import CodeSession, missing

try:
    from smolagents.local_python_executor import CodeOutput, InterpreterError, PythonExecutor
    from smolagents.serialization import SafeSerializer
except ImportError as error:
    raise missing("smolagents", "smolagents") from error

__all__ = ["SandboxExecutor"]

_FINAL = "final_answer"


class SandboxExecutor(PythonExecutor, AbstractContextManager["SandboxExecutor"]):  # type: ignore[misc, unused-ignore]
    """Runs the code of a `CodeAgent` in a session of a sandbox, which lasts until `cleanup`, over several runs.

    Code calls the agent's tools and managed agents as functions of the host, with JSON-like data. Other tools than
    before are a new session, without earlier variables. smolagents shows each exception to the model, also one that
    says that the sandbox broke.

    Args:
        options: Arguments of `coderoom.sandbox.Sandbox`.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._tools: dict[str, Any] = {}
        self._variables: dict[str, Any] = {}
        self._session: CodeSession | None = None
        self._answers: list[Any] = []

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Offer these tools to the code, and no others."""
        if tools != self._tools:
            self.cleanup()
            self._tools = dict(tools)

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Set variables before the next code; values that are not data are a `SerializationError`."""
        self._variables.update(variables)

    def __call__(self, code_action: str) -> CodeOutput:
        """Run code; a failure is an `InterpreterError` with its output."""
        if self._session is None:
            self._session = CodeSession([self._function(*tool) for tool in self._tools.items()], **self._options)
        if self._variables:
            values = SafeSerializer.dumps(self._variables, allow_pickle=False)
            decoder = SafeSerializer.get_deserializer_code(False)
            self._checked(self._session, f"{decoder}\nglobals().update(_deserialize({values!r}))\nNone")
            self._variables.clear()
        self._answers.clear()
        return self._checked(self._session, code_action)

    def cleanup(self) -> None:
        """End the session; code that follows has a new one."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def _checked(self, session: CodeSession, code: str) -> CodeOutput:
        result = session.run_blocking(code)
        if self._answers:
            return CodeOutput(output=self._answers[0], logs=result.stdout, is_final_answer=True)
        if result.error is not None:
            raise InterpreterError(session.describe(result))
        return CodeOutput(output=result.value, logs=result.output, is_final_answer=False)

    def _function(self, name: str, tool: Any) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            found = tool(*args, **kwargs)
            if name != _FINAL:
                return found
            self._answers.append(found)
            raise _Answered("The task is done.")

        forward = getattr(tool, "forward", tool.__call__)  # A managed agent has none.
        call.__name__, call.__doc__, call.__annotations__ = name, tool.description, forward.__annotations__
        whole = inspect.signature(forward)  # `@tool` adds a `self` to a function that is not a method.
        seen = [each for each in whole.parameters.values() if each.name != "self"]
        call.__signature__ = whole.replace(parameters=seen)  # type: ignore[attr-defined]
        return call


class _Answered(Exception):  # noqa: N818 (it ends the code, as `return` does)
    """Ends code that has given its final answer."""
