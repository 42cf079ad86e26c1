# ruff: noqa: E501 (calls and what comes of them, one to a line)
"""AutoGen's tools and workbenches as functions in a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from autogen_core import CancellationToken, Image
from autogen_core.tools import (
    BaseTool,
    FunctionTool,
    ImageResultContent,
    StaticWorkbench,
    TextResultContent,
    ToolResult,
)
from PIL import Image as PillowImage
from pydantic import BaseModel, Field

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import HostFunction, Limits, Sandbox, host_functions

from .offered import run


class City(BaseModel):
    name: str
    size: int = Field(default=1, ge=0)


def population(city: str, year: int = 2020, detailed: bool = False) -> dict[str, Any]:
    return {"city": city, "year": year, "detailed": detailed}


async def describe_city(city: City, tags: list[str]) -> City:
    return City(name=f"{city.name} {'/'.join(tags)}", size=city.size)


async def wait(seconds: float, cancellation_token: CancellationToken) -> str:
    """Wait."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        WAITED.append("cancelled")
        raise
    return "waited"


WAITED: list[str] = []


def fail(why: str) -> str:
    raise LookupError(why)


class AskArgs(BaseModel):
    question: str
    times: int = Field(default=1, le=3)


class AskTool(BaseTool[Any, Any]):
    def __init__(self) -> None:
        super().__init__(AskArgs, str, "ask-somebody", "Ask somebody.")

    async def run(self, args: AskArgs, cancellation_token: CancellationToken) -> str:
        assert not cancellation_token.is_cancelled()
        return args.question * args.times


TOOLS: list[BaseTool[Any, Any]] = [
    FunctionTool(population, "How many live there."),
    FunctionTool(describe_city, "Describe it.", name="describe"),
    FunctionTool(wait, "Wait."),
    FunctionTool(fail, "Fail."),
    AskTool(),
]


class OddWorkbench(StaticWorkbench):
    """A workbench of which everything is odd."""

    def __init__(self, parameters: Mapping[str, Any], result: Any = None, name: str = "odd") -> None:
        super().__init__([])
        self.parameters, self.result, self.name = parameters, result, name
        self.called: list[Any] = []

    async def list_tools(self) -> list[Any]:
        return [{"name": self.name, "parameters": self.parameters}]

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        self.called.append((name, arguments))
        return self.result


def text(*parts: str, is_error: bool = False) -> ToolResult:
    return ToolResult(name="odd", result=[TextResultContent(content=part) for part in parts], is_error=is_error)


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(limits=Limits(wall_seconds=20)) as sandbox:
        yield sandbox


async def only(*functions: Any) -> HostFunction:
    (function,) = await host_functions(functions)
    return function


class TestTools:
    async def test_they_are_functions_with_their_own_signature(self, sandbox: Sandbox) -> None:
        code = (
            "import inspect\n[str(inspect.signature(each)) for each in (population, describe, wait, ask_somebody)]"
            " + [population.__doc__, inspect.iscoroutinefunction(describe), inspect.iscoroutinefunction(population)]"
        )
        result = await run(sandbox, code, *TOOLS)
        assert result.success, result.output
        assert result.value == [
            "(city: str, year: int = 2020, detailed: bool = False) -> dict[str, typing.Any]",
            "(city: tests.sandbox.test_functions_tools.City, tags: list[str]) -> tests.sandbox.test_functions_tools.City",
            "(seconds: float) -> str",
            "(question: str, times: int = 1)",
            "How many live there.",
            True,
            False,
        ]

    async def test_they_return_data(self, sandbox: Sandbox) -> None:
        code = (
            "[population('Ulm', year=1900), await describe({'name': 'Ulm'}, ['a', 'b']), await wait(0),"
            " ask_somebody('why? ', times=2)]"
        )
        result = await run(sandbox, code, *TOOLS)
        assert result.value == [
            {"city": "Ulm", "year": 1900, "detailed": False},
            {"name": "Ulm a/b", "size": 1},
            "waited",
            "why? why? ",
        ], result.output

    @pytest.mark.parametrize(
        ("call", "why", "outcome"),
        [
            ("population()", "TypeError: population(): missing a required argument: 'city'", Outcome.REJECTED),
            ("population('a', 'b')", "TypeError: population(): year: Input should be a valid integer", Outcome.REJECTED),
            ("await describe({'size': -1}, [])", "TypeError: describe(): city.name: Field required; city.size: Input", Outcome.REJECTED),
            ("ask_somebody('x', 4)", "TypeError: ask_somebody(): times: Input should be less than", Outcome.REJECTED),
            ("await wait(0, cancellation_token=1)", "unexpected keyword argument 'cancellation_token'", Outcome.REJECTED),
            ("fail('gone')", "LookupError: gone", Outcome.ERROR),
        ],
    )  # fmt: skip
    async def test_what_goes_wrong_is_said(self, sandbox: Sandbox, call: str, why: str, outcome: Outcome) -> None:
        result = await run(sandbox, call, *TOOLS)
        assert result.error is not None
        assert why in f"{result.error.type}: {result.error.message}"
        assert [each.outcome for each in result.calls] == [outcome]

    async def test_they_are_cancelled_with_the_cell(self, sandbox: Sandbox) -> None:
        WAITED.clear()
        async with sandbox.session(functions=TOOLS) as session:
            result = await session.run("await wait(3600)", timeout=0.4)
            assert result.outcome is Outcome.TIMEOUT
            assert WAITED == ["cancelled"]

    async def test_a_name_that_is_none_is_made_one(self) -> None:
        assert (await only(AskTool())).name == "ask_somebody"
        with pytest.raises(RequestError, match="'1st' cannot be offered"):
            await host_functions([FunctionTool(population, "", name="1st")])
        with pytest.raises(RequestError, match="under the name 'population'"):
            await host_functions([population, StaticWorkbench([TOOLS[0]])])


class TestWorkbenches:
    async def test_all_tools_of_one(self, sandbox: Sandbox) -> None:
        async with StaticWorkbench(TOOLS) as workbench:
            code = (
                "import inspect\n[str(inspect.signature(population)), population.__doc__, population('Ulm'),"
                " describe(tags=['a'], city={'name': 'Ulm', 'size': 3}), ask_somebody('why?')]"
            )
            result = await run(sandbox, code, workbench)
            assert result.value == [
                "(city: str, year: int = 2020, detailed: bool = False)",
                "How many live there.",
                "{'city': 'Ulm', 'year': 2020, 'detailed': False}",  # It answers with text only.
                '{"name": "Ulm a", "size": 3}',
                "why?",
            ], result.output
            assert [call.name for call in result.calls] == ["population", "describe", "ask_somebody"]

    @pytest.mark.parametrize(
        ("call", "why", "outcome"),
        [
            ("population()", "missing a required argument: 'city'", Outcome.REJECTED),
            ("population(3)", "population(): city: 3 is not of type 'string'", Outcome.REJECTED),
            ("describe(city={'name': 1}, tags=[])", "describe(): city.name: 1 is not of type 'string'", Outcome.REJECTED),
            ("describe({'name': ''}, ['', 2])", "describe(): tags[1]: 2 is not of type 'string'", Outcome.REJECTED),
            ("fail('gone')", "gone", Outcome.ERROR),
        ],
    )  # fmt: skip
    async def test_what_goes_wrong_is_said(self, sandbox: Sandbox, call: str, why: str, outcome: Outcome) -> None:
        result = await run(sandbox, call, StaticWorkbench(TOOLS))
        assert result.error is not None
        assert result.error.type == ("TypeError" if outcome is Outcome.REJECTED else "RuntimeError")
        assert why in result.error.message
        assert [each.outcome for each in result.calls] == [outcome]

    async def test_what_it_answers(self, sandbox: Sandbox) -> None:
        pixel = Image(PillowImage.new("RGB", (1, 1)))
        image = ToolResult(name="odd", result=[TextResultContent(content="see"), ImageResultContent(content=pixel)])
        for answer, value in (
            (text("a"), "a"),
            (text("a", "b"), ["a", "b"]),
            (text(), []),
            (image, ["see", {"type": "image", "base64": pixel.to_base64()}]),
        ):
            assert (await run(sandbox, "odd()", OddWorkbench({}, answer))).value == value
        for answer, said in ((text("x", "y", is_error=True), "x\ny"), (text(is_error=True), "did not say why")):
            error = (await run(sandbox, "odd()", OddWorkbench({}, answer))).error
            assert error is not None
            assert said in error.message

    @pytest.mark.parametrize(
        ("parameters", "signature"),
        [
            ({}, "()"),
            ({"properties": {"b": {"type": "string"}, "a": {"type": "integer"}}, "required": ["a"]}, "(a: 'int', b: 'str' = None)"),
            ({"properties": {"a": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": 1}}}, "(a: 'float | None' = 1)"),
            ({"properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}, "(a: 'str | None')"),
            ({"properties": {"a": {"enum": ["x", 1]}}, "required": ["a"]}, "(a: \"Literal['x', 1]\")"),
            ({"properties": {"a": {"type": "array", "items": {"type": "object"}}}, "required": ["a"]}, "(a: 'list[dict]')"),
            ({"properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"], "$defs": {"A": {}}}, "(a: 'Any')"),
            ({"properties": {"a": True, "b": {"oneOf": []}}}, "(a: 'Any' = None, b: 'Any' = None)"),
            ({"properties": {"a-b": {"type": "string"}}}, "(**arguments)"),
            ({"properties": {"class": {"type": "string"}}}, "(**arguments)"),
        ],
    )  # fmt: skip
    async def test_signatures_from_schemas(self, parameters: Mapping[str, Any], signature: str) -> None:
        assert str((await only(OddWorkbench(parameters))).signature) == signature

    async def test_names_that_python_does_not_have(self, sandbox: Sandbox) -> None:
        workbench = OddWorkbench({"properties": {"a-b": {"type": "string"}}, "additionalProperties": False}, text("ok"))
        code = "said = []\nfor more in ({'a-b': 'x'}, {}, {'a-b': 1}, {'c': 1}):\n    try: said.append(odd(**more))\n    except TypeError as e: said.append(str(e))\nsaid"
        result = await run(sandbox, code, workbench)
        assert result.value[:2] == ["ok", "ok"], result.output
        assert "is not of type 'string'" in result.value[2]
        assert "'c' was unexpected" in result.value[3]
        assert workbench.called == [("odd", {"a-b": "x"}), ("odd", {})]

    @pytest.mark.parametrize(
        "parameters",
        [
            {"properties": [], "required": [[]]},
            {"properties": {"a": {"type": "no such type"}}},
            {"properties": {"a": {"pattern": "("}}},
            {"properties": {"a": {"maxLength": "x"}}},
        ],
    )
    async def test_a_schema_that_is_wrong_is_said(self, sandbox: Sandbox, parameters: Any) -> None:
        result = await run(sandbox, "odd(a='1')", OddWorkbench(parameters, text("ok")))
        assert result.error is not None
        assert [call.outcome for call in result.calls] == [Outcome.REJECTED]
        assert (await run(sandbox, "1", OddWorkbench(parameters))).value == 1

    @pytest.mark.parametrize("reference", ["http://127.0.0.1:{port}/schema", "#/nowhere", "file:///etc/passwd"])
    async def test_a_schema_makes_the_host_fetch_nothing(self, sandbox: Sandbox, reference: str) -> None:
        asked = []

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readline())
            writer.close()

        async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            parameters = {"properties": {"a": {"$ref": reference.format(port=port)}}}
            result = await run(sandbox, "odd(a=1)", OddWorkbench(parameters, text("ok")))
        assert asked == []
        assert result.error is not None
        assert "its schema is wrong" in result.error.message

    async def test_what_is_offered_is_asked_for_when_the_session_starts(self, sandbox: Sandbox) -> None:
        workbench = OddWorkbench({}, text("ok"), name="no name")
        async with sandbox.session(functions=[workbench]) as session:
            assert (await session.run("no_name()")).value == "ok"
        for name in ("", "class", "1"):
            with pytest.raises(RequestError, match="cannot be offered"):
                async with sandbox.session(functions=[OddWorkbench({}, name=name)]):
                    pass

    @pytest.mark.slow
    async def test_large_arguments_are_checked_beside_the_event_loop(self, sandbox: Sandbox) -> None:
        workbench = OddWorkbench({"properties": {"a": {"type": "array", "items": {"type": "integer"}}}}, text("ok"))
        result = await run(sandbox, "odd(['x'] * 50_000)", workbench)
        assert result.error is not None
        assert "is not of type 'integer'" in result.error.message
        assert (await run(sandbox, "odd([1] * 50_000)", workbench)).value == "ok"
