"""`coderoom.agent`: makes an agent of an async function whose docstring is the template of its request."""

from __future__ import annotations

import dis
import functools
import inspect
import json
import re
import sys
import typing
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NoReturn, overload

from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import BaseTool, FunctionTool, Tool
from pydantic import BaseModel, TypeAdapter, ValidationError, create_model

from coderoom.agents.conversation import StreamingAgent
from coderoom.blocks import without_thoughts
from coderoom.errors import CodeRoomError, ModelError, RequestError
from coderoom.models.calling import call_model
from coderoom.models.json_output import json_objects, parse_tolerantly, request_for_json
from coderoom.models.services import in_words
from coderoom.models.structured import ask_structured

Function = Callable[..., Awaitable[Any]]
AgentTool = BaseTool[Any, Any] | Callable[..., Any]

_SYSTEM: Final = (
    "You do one task and answer with its result and nothing else: no preface, no explanation of how you got it. If you "
    "have tools, use them instead of guessing."
)
_ARGUMENTS: Final = "Find the arguments of a task in this conversation. The task:\n"
_PLACE: Final = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_PATH: Final = re.compile(r"([A-Za-z_]\w*)((?:\.\w+|\[\w+\])*)")
_MOST_ROUNDS: Final = 20
_EMPTY_BODY: Final = frozenset(
    "RESUME RETURN_GENERATOR POP_TOP NOP LOAD_CONST RETURN_CONST RETURN_VALUE COPY_FREE_VARS MAKE_CELL CACHE "  # noqa: SIM905
    "CALL_INTRINSIC_1 RERAISE STOPITERATION_ERROR GEN_START NOT_TAKEN EXTENDED_ARG".split()
)


@overload
def agent(function: Function, /) -> FunctionAgent: ...


@overload
def agent(
    *,
    model: ChatCompletionClient | str | None = None,
    tools: Sequence[AgentTool] = (),
    max_retries: int = 2,
    name: str | None = None,
) -> Callable[[Function], FunctionAgent]: ...


def agent(
    function: Function | None = None,
    /,
    *,
    model: ChatCompletionClient | str | None = None,
    tools: Sequence[AgentTool] = (),
    max_retries: int = 2,
    name: str | None = None,
) -> FunctionAgent | Callable[[Function], FunctionAgent]:
    """Make an agent of an async function: a decorator, with or without arguments.

    The docstring is the request to the model, with the arguments in `{{ name }}`; an argument that it does not name is
    added at its end. The result has the declared type: an answer that does not fit is asked for again. A function with
    code of its own is run instead of asking a model, and its result is checked in the same way.

    The agent is called as the function is. It is also one of AutoGen's chat agents, for any team: its argument is then
    the text of the new messages, or the model finds the arguments in them if there are several.

    Args:
        function: The function.
        model: An AutoGen model client, or what `--model` takes. `None`: the variable `CODEROOM_MODEL`, else OpenAI's
            `gpt-4o`. It is made on first use.
        tools: What the model may call: functions with annotations and a docstring, such as `coderoom.execute_code`,
            other agents of this kind, and AutoGen's tools. The model must be able to call functions.
        max_retries: How often an answer that does not fit is asked for again, 0 or more.
        name: The agent's name; `None`: the function's.

    Raises:
        RequestError: The function is not async or has no docstring, or the docstring names what is no parameter.
    """
    scope = sys._getframe(1).f_locals  # A class of the result may be defined where the function is.

    def make(function: Function) -> FunctionAgent:
        return FunctionAgent(function, model, tools, max_retries, name, scope)

    return make if function is None else make(function)


class FunctionAgent(StreamingAgent):
    """An agent that `coderoom.agent` makes of a function; it is called as the function is."""

    def __init__(
        self,
        function: Function,
        model: ChatCompletionClient | str | None,
        tools: Sequence[AgentTool],
        max_retries: int,
        name: str | None,
        scope: dict[str, Any],
    ) -> None:
        if not inspect.iscoroutinefunction(function):
            raise RequestError(f"{function!r} is not an async function, and an agent is made of one: `async def`.")
        template = inspect.getdoc(function) or ""
        if not template.strip():
            raise RequestError(
                f"The function {function.__name__!r} has no docstring, which is the request to the model."
            )
        if type(max_retries) is not int or max_retries < 0:
            raise RequestError(f"max_retries={max_retries!r} must be a whole number, 0 or more.")
        super().__init__(name or function.__name__, template.strip().splitlines()[0])
        functools.update_wrapper(self, function)
        self._function, self._template, self._tools = function, template, list(tools)
        self._types = typing.get_type_hints(function, localns=scope, include_extras=True)
        self._signature = inspect.signature(function)
        self._result = self._types.get("return", str)
        self._is_text = self._result in (str, Any, type(None))
        try:
            is_model = inspect.isclass(self._result) and issubclass(self._result, BaseModel)
            self._schema: type[BaseModel] = (
                self._result if is_model else create_model("Answer", result=(self._result, ...))
            )
        except Exception as error:
            raise RequestError(f"An answer cannot have the type {self._result!r}: {error}") from error
        self._max_retries = max_retries
        self._model = model
        self._model_client = model if isinstance(model, ChatCompletionClient) else None
        _check_template(template, function.__name__, list(self._signature.parameters))

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do the task with these arguments, and return its result.

        Raises:
            TypeError: The arguments do not fit the function.
            ModelError: The request to the model failed, or no answer fits the type of the result.
        """
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return await self._do(bound.arguments, CancellationToken(), [])

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Do the task with the arguments that are in the new messages; the answer is the result, as text or JSON."""
        used: list[RequestUsage] = []
        said = "\n\n".join(message.to_model_text() for message in messages)
        arguments = await self._find_arguments(said, cancellation_token, used)
        result = await self._do(arguments, cancellation_token, used)
        text = result if isinstance(result, str) else TypeAdapter(Any).dump_json(result).decode()
        tokens = [sum(each.prompt_tokens for each in used), sum(each.completion_tokens for each in used)]
        usage = RequestUsage(prompt_tokens=tokens[0], completion_tokens=tokens[1]) if used else None
        return Response(chat_message=TextMessage(content=text, source=self.name, models_usage=usage))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Do nothing: it has no state."""

    def _to_config(self) -> NoReturn:
        raise ValueError(
            f"Cannot serialize the agent {self.name!r}: it is made of a function, which cannot be part of a config. "
            "Build its team in Python."
        )

    @property
    def _client(self) -> ChatCompletionClient:
        if self._model_client is None:
            from coderoom.configs import default_model, resolve_model  # It is above this package.

            self._model_client = resolve_model(default_model() if self._model is None else self._model)
        return self._model_client

    async def _do(self, arguments: dict[str, Any], token: CancellationToken, used: list[RequestUsage]) -> Any:
        if _has_body(self._function):
            call = inspect.BoundArguments(self._signature, typing.cast(Any, arguments))
            found = await self._function(*call.args, **call.kwargs)
            return found if self._is_text else TypeAdapter(self._result).validate_python(found)
        tools = [_as_tool(tool, self._client) for tool in self._tools]
        request = _fill_in(self._template, arguments)
        if tools and not self._is_text:
            request = f"{request}\n\n{request_for_json(self._schema)}"
        messages: list[LLMMessage] = [SystemMessage(content=_SYSTEM), UserMessage(content=request, source="user")]
        problem = text = ""
        for _ in range(self._max_retries + 1):
            text = await self._reply(messages, tools, token, used)
            value, problem = self._read(text)
            if not problem:
                return value
            again = f"That does not fit: {problem}\nAnswer again, with the whole result and nothing else."
            said = AssistantMessage(content=text.strip() or "(no answer)", source=self.name)
            messages += [said, UserMessage(content=again, source="user")]
        kind = inspect.formatannotation(self._result)
        raise ModelError(
            f"The agent {self.name!r} gave no answer that fits {kind}, in {self._max_retries + 1} tries: {problem} "
            f"It said: {' '.join(text.split())[:300] or 'nothing'!r}"
        )

    async def _reply(
        self, messages: list[LLMMessage], tools: list[Tool], token: CancellationToken, used: list[RequestUsage]
    ) -> str:
        """The model's words, after its calls of tools."""
        try:
            if not tools and not self._is_text:
                answer = await ask_structured(
                    self._client, messages, self._schema, source="user", cancellation_token=token
                )
                used += [answer.usage] if answer.usage else []
                return answer.text
            for _ in range(_MOST_ROUNDS):
                reply = await call_model(self._client, messages, token, tools)
                used.append(reply.usage)
                if isinstance(reply.content, str):
                    return reply.content
                messages.append(AssistantMessage(content=reply.content, source=self.name))
                results = [await _run_tool(call, tools, token) for call in reply.content]
                messages.append(FunctionExecutionResultMessage(content=results))
        except CodeRoomError:
            raise
        except Exception as error:
            raise ModelError(in_words(f"The model of the agent {self.name!r}", error)) from error
        raise ModelError(f"The agent {self.name!r} called tools {_MOST_ROUNDS} times and gave no answer.")

    def _read(self, text: str) -> tuple[Any, str]:
        """The result in an answer, and why there is none."""
        spoken = without_thoughts(text).strip()
        if self._is_text:
            return (None if self._result is type(None) else spoken), "" if spoken else "it is empty."
        found = parse_tolerantly(text, self._schema)
        if found is not None:
            return (found if self._schema is self._result else found.result), ""  # type: ignore[attr-defined]
        bare = re.sub(r"\A```\w*\s*|\s*```\Z", "", spoken)
        candidates = [raw for _, raw in json_objects(spoken)] if self._schema is self._result else [bare]
        problem = "there is no JSON in it that can be read."
        for candidate in candidates[:1] or [bare]:
            try:
                return TypeAdapter(self._result).validate_json(candidate), ""
            except ValidationError as error:
                problem = "; ".join(
                    f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ")
                    for each in error.errors()[:5]
                )
        return None, f"{problem.rstrip('.')}."

    async def _find_arguments(self, said: str, token: CancellationToken, used: list[RequestUsage]) -> dict[str, Any]:
        parameters = list(self._signature.parameters.values())
        if len(parameters) == 1 and self._types.get(parameters[0].name, str) is str:
            return {parameters[0].name: said}
        if not parameters:
            return {}
        fields: dict[str, Any] = {
            each.name: (self._types.get(each.name, Any), ... if each.default is each.empty else each.default)
            for each in parameters
        }
        schema = create_model("Arguments", **fields)
        messages: list[LLMMessage] = [
            SystemMessage(content=f"{_ARGUMENTS}{self._template}"),
            UserMessage(content=said, source="user"),
        ]
        for _ in range(self._max_retries + 1):
            answer = await ask_structured(self._client, messages, schema, source="user", cancellation_token=token)
            used += [answer.usage] if answer.usage else []
            if answer.value is not None:
                return {name: getattr(answer.value, name) for name in fields}
        raise ModelError(f"The arguments of the agent {self.name!r} are not in its messages: {', '.join(fields)}.")


def _check_template(template: str, name: str, parameters: list[str]) -> None:
    if "{%" in template:
        raise RequestError(f"The docstring of {name!r} contains '{{%': only arguments in {{{{ name }}}} are replaced.")
    for place in _PLACE.findall(template):
        path = _PATH.fullmatch(place)
        if path is None or path[1] not in parameters:
            known = ", ".join(parameters) or "none"
            raise RequestError(f"{{{{ {place} }}}} in the docstring of {name!r} is no parameter; there are: {known}.")


def _fill_in(template: str, arguments: dict[str, Any]) -> str:
    named: set[str] = set()

    def value(place: re.Match[str]) -> str:
        path = _PATH.fullmatch(place[1])
        assert path is not None
        named.add(path[1])
        found = arguments[path[1]]
        for attribute, key in re.findall(r"\.(\w+)|\[(\w+)\]", path[2]):
            if attribute and not isinstance(found, dict):
                found = getattr(found, attribute)
            else:
                found = found[int(key) if key.isdigit() else attribute or key]
        return _shown(found)

    text = _PLACE.sub(value, template)
    rest = [f"{name}: {_shown(found)}" for name, found in arguments.items() if name not in named]
    return "\n\n".join([text, *rest])


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return TypeAdapter(Any).dump_json(value).decode()
    except Exception:  # Not everything is data.
        return str(value)


def _has_body(function: Function) -> bool:
    """Whether a function has code of its own: more than a docstring, `pass`, `...` or a bare return."""
    code = function.__code__
    if code.co_names == ("NotImplementedError",):
        return False
    instructions = list(dis.get_instructions(code))
    returned = [
        each.argval
        for each, following in zip(instructions, [*instructions[1:], None], strict=True)
        if each.opname == "RETURN_CONST"
        or (each.opname == "LOAD_CONST" and following is not None and following.opname == "RETURN_VALUE")
    ]
    return any(each.opname not in _EMPTY_BODY for each in instructions) or any(each is not None for each in returned)


def _as_tool(tool: AgentTool, client: ChatCompletionClient) -> Tool:
    if isinstance(tool, FunctionAgent):
        inner = tool

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await inner(*args, **kwargs)

        functools.update_wrapper(call, inner._function)
        call.__annotations__ = inner._types
        return FunctionTool(call, inner.description, name=inner.name)
    if not callable(tool):
        return tool
    if getattr(tool, "__module__", "") == "coderoom.runs.execute_question":
        run = tool

        async def execute_code(question: str) -> str:
            """Answer a question by Python code, which is written and run in a sandbox."""
            answer = await run(question, model=client)
            return json.dumps({key: answer[key] for key in ("success", "result", "error", "code")}, default=str)

        return FunctionTool(execute_code, execute_code.__doc__ or "")
    return FunctionTool(tool, inspect.getdoc(tool) or tool.__name__)


async def _run_tool(call: FunctionCall, tools: list[Tool], token: CancellationToken) -> FunctionExecutionResult:
    """Run a tool that the model calls; an error is its result, which the model may react to."""
    chosen = next((tool for tool in tools if tool.name == call.name), None)
    try:
        if chosen is None:
            raise ValueError(f"There is no tool {call.name!r}; there are {', '.join(tool.name for tool in tools)}.")
        value = await chosen.run_json(json.loads(call.arguments or "{}"), token, call_id=call.id)
        text, is_error = chosen.return_value_as_string(value), False
    except CodeRoomError:
        raise
    except Exception as error:
        text, is_error = f"{type(error).__name__}: {error}", True
    return FunctionExecutionResult(content=text, name=call.name, call_id=call.id, is_error=is_error)
