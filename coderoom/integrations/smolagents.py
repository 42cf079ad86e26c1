"""smolagents: a `PythonExecutor` whose code runs in the sandbox, and whose tools run on the host.

    with SandboxExecutor() as executor:
        agent = CodeAgent(tools=[...], model=model, executor=executor, additional_authorized_imports=["*"])
        agent.run("...")

Sandboxed code may import any module, which `["*"]` tells the model.
"""

from __future__ import annotations

import base64
import inspect
import io
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from coderoom.integrations.tool import CodeSession, missing
from coderoom.sandbox import HostFunction, Sandbox
from coderoom.sandbox.functions.callables import from_callable
from coderoom.sandbox.guest import decoding, encoding
from coderoom.sandbox.guest.decoding import TAGS, Decoder, as_text
from coderoom.sandbox.guest.encoding import ValueEncoder

try:
    from smolagents.local_python_executor import CodeOutput, InterpreterError, PythonExecutor
    from smolagents.serialization import SafeSerializer
except ImportError as error:
    raise missing("smolagents", "smolagents") from error

__all__ = ["SandboxExecutor"]

_FINAL: Final = "final_answer"
_DONE: Final = "The task is done: it has its final answer."
_MOST_PIXELS: Final = 100_000_000
_VALUE_BYTES: Final = 16 * 1024 * 1024
_SHOWN: Final = 20_000  # Characters of a `value_repr`.


class SandboxExecutor(PythonExecutor, AbstractContextManager["SandboxExecutor"]):  # type: ignore[misc, unused-ignore]
    """Runs the code of a `CodeAgent` in a session of a sandbox, which lasts until `cleanup`, over several runs.

    Code calls the agent's tools and managed agents as functions of the host, with data, arrays of NumPy, tables
    and columns of pandas, and pictures; a figure of matplotlib becomes a picture. The final answer ends the code,
    and no tool is called after it. Other tools than before are a new session, without earlier variables. smolagents
    shows each exception to the model, also one that says that the sandbox broke.

    Args:
        options: Arguments of `coderoom.sandbox.Sandbox`.
    """

    def __init__(self, **options: Any) -> None:
        limits = options.get("limits") or {}
        if isinstance(limits, Mapping):
            options["limits"] = {"value_bytes": _VALUE_BYTES, **limits}
        Sandbox(**options)  # Wrong options are refused now.
        self._options = options
        self._tools: dict[str, Any] = {}
        self._variables: dict[str, Any] = {}
        self._session: CodeSession | None = None
        self._answers: list[Any] = []
        self._ends_inside = False

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
            # Where the policy or the engine refuses this, tools take and return plain data.
            offered = self._session.run_blocking(f"{_INSIDE}\noffer({_SOURCE!r}, {[*self._tools]!r})\ndel offer\n")
            self._ends_inside = offered.success
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
        value = result.value
        if isinstance(value, list | dict) and repr(value)[:_SHOWN] != str(result.value_repr)[:_SHOWN]:
            value = result.value_repr  # What a table or an array looks like; its data would be each of its rows.
        return CodeOutput(output=value, logs=result.output, is_final_answer=False)

    def _function(self, name: str, tool: Any) -> HostFunction:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._answers:
                raise _Answered(_DONE)
            found = tool(*args, **kwargs)
            if name != _FINAL:
                return found
            self._answers.append(found)
            if not self._ends_inside:
                raise _Answered(_DONE)
            return None

        forward = getattr(tool, "forward", tool.__call__)  # A managed agent has none.
        call.__name__, call.__doc__ = name, tool.description
        call.__annotations__ = {} if name == _FINAL else forward.__annotations__
        whole = inspect.signature(forward)  # `@tool` adds a `self` to a function that is not a method.
        seen = [each for each in whole.parameters.values() if each.name != "self"]
        call.__signature__ = whole.replace(parameters=seen)  # type: ignore[attr-defined]
        function = from_callable(call)

        def check(args: Any, kwargs: Any) -> Any:
            if self._ends_inside:
                args, kwargs = [_decode(each) for each in args], {key: _decode(each) for key, each in kwargs.items()}
            return function.check(args, kwargs)

        def pack(value: Any) -> Any:
            if self._ends_inside:
                return _encode(value)
            return value if function.pack is None else function.pack(value)

        return replace(function, check=check, pack=pack)


class _Answered(Exception):  # noqa: N818 (it ends the code, as `return` does)
    """Ends code that has given its final answer, where nothing inside does."""


# --- Values, on both sides of the wall ---


class _Values(ValueEncoder):
    def _opaque(self, value: Any, why: str = "it has no tagged form") -> Any:
        value = getattr(value, "figure", value)  # That of axes.
        buffer = io.BytesIO()
        if callable(getattr(value, "savefig", None)):
            value.savefig(buffer, format="png", bbox_inches="tight")
        elif any(each.__module__ == "PIL.Image" for each in type(value).__mro__):
            known = value.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I")
            (value if known else value.convert("RGB")).save(buffer, "png")
        else:
            return super()._opaque(value, why)
        return {"$picture": base64.b64encode(buffer.getvalue()).decode()}

    def _pandas(self, value: Any, kind: type) -> Any:
        pandas: Any = self._library("pandas")
        if issubclass(kind, getattr(pandas, "Series", ())) and value.size <= self._items:
            table = self._frame(value.to_frame("values"), pandas)["$table"]
            return {"$column": {"name": self.encode(value.name), "table": table}}
        return super()._pandas(value, kind)

    def _frame(self, value: Any, pandas: Any) -> Any:
        return {"$table": self.encode(value.to_dict("tight"))}


def _encode(value: Any) -> Any:
    """Data that `_decode` makes a value of; the value itself if there is none."""
    try:
        return _Values(10_000_000, 100_000_000).encode(value)
    except ValueError:
        return value


def _decode(data: Any) -> Any:
    """The value of data, which may be hostile."""
    tags = {**TAGS, "$array": _array, "$picture": _picture, "$table": _table, "$column": _column}
    return Decoder(tags=tags).read(data)


def _array(reader: Decoder, data: Any) -> Any:
    items = TAGS["$array"](reader, data)
    try:
        import numpy
    except ImportError:
        return items
    try:
        dtype = numpy.dtype(as_text(data["dtype"]))
    except (TypeError, ValueError, SyntaxError):  # That of records, whose items are tuples.
        return items
    return numpy.array(items, dtype if dtype.kind in "biufc" else None).reshape(data["shape"])


def _table(reader: Decoder, data: Any) -> Any:
    parts = reader.read(data)
    try:
        import pandas
    except ImportError:
        rows = [dict(zip(parts["columns"], row)) for row in parts["data"]]  # noqa: B905 (Python 3.8)
        if parts["index"] == [*range(len(rows))]:
            return rows
        return [{"index": label, **row} for label, row in zip(parts["index"], rows)]  # noqa: B905
    try:
        return pandas.DataFrame.from_dict(parts, orient="tight")
    except (LookupError, AttributeError, AssertionError) as error:
        raise ValueError(f"this is no table: {error}") from error


def _column(reader: Decoder, data: Any) -> Any:
    table = _table(reader, data["table"])
    if isinstance(table, list):
        return [[*row.values()][-1] for row in table]
    return table.iloc[:, 0].rename(reader.read(data["name"]))


def _picture(_: Decoder, data: Any) -> Any:
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(data)), formats=["PNG"])
    if picture.width * picture.height > _MOST_PIXELS:
        raise ValueError("the picture is too large")
    picture.load()
    return picture


def _wrap(function: Any, ends: bool) -> Any:
    """Behind the wall: a function of the host that takes and returns values, and perhaps ends the code."""
    import functools

    class FinalAnswer(BaseException):
        """Ends the code."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs = {key: _encode(each) for key, each in kwargs.items()}
        found = _decode(function(*[_encode(each) for each in args], **kwargs))
        if ends:
            raise FinalAnswer
        return found

    return call


_OURS: Final[tuple[Any, ...]] = (_Values, _encode, _decode, _array, _table, _column, _picture, _wrap)
_SOURCE: Final = "\n\n".join(
    [
        "from __future__ import annotations\nimport base64, io",
        f"_MOST_PIXELS = {_MOST_PIXELS}",
        *(
            inspect.getsource(each).replace("from __future__", "# ").replace("from .encoding", "# ")
            for each in (encoding, decoding)
        ),
        *(inspect.getsource(each) for each in _OURS),
    ]
)
_INSIDE: Final = f"""\
def offer(source, names):
    scope = {{"__name__": "coderoom_values"}}
    exec(compile(source, "<values>", "exec"), scope)
    for name in names:
        globals()[name] = scope["_wrap"](globals()[name], name == {_FINAL!r})
"""
