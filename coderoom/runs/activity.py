"""What a team's agents do at the moment, and the facts about AutoGen's agents that their messages do not have.

Used by `run_team`, which prepares each team here.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from typing import Any, Final

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core.code_executor import CodeResult

from coderoom._util.autogen import agents_of, executor_of, model_client_of
from coderoom._util.tasks import CODE, once
from coderoom._util.terminal import asking
from coderoom.agents import CodeActAgent, CodeExecutorAgent, HumanApprovedAgent
from coderoom.agents import metadata as keys
from coderoom.runs.record import RunRecord
from coderoom.sandbox import OutputChunk

_SETTLE_SECONDS: Final = 0.15
Watch = Callable[[ModelClientStreamingChunkEvent], None]


@contextmanager
def noting_activity(team: Any, record: RunRecord, watch: Watch) -> Iterator[None]:
    """Have the record told who takes a turn, when an agent of AutoGen's runs code, and when one asks a person.

    `watch` gets the output of code that such an agent runs in a sandbox, while it runs.
    """
    with ExitStack() as stack:

        def put(owner: Any, name: str, noting: Any) -> None:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, noting)

        for agent in agents_of(team, hidden=True):
            put(agent, "on_messages_stream", _noting_turn(agent, record))
            executor = executor_of(agent)
            if executor is not None and not isinstance(agent, CodeExecutorAgent | CodeActAgent | HumanApprovedAgent):
                run = _noting_run(agent.name, executor.execute_code_blocks, record, watch)
                put(executor, "execute_code_blocks", run)
            if isinstance(agent, UserProxyAgent) and not isinstance(agent, HumanApprovedAgent):
                put(agent, "input_func", _noting_question(agent.name, agent.input_func, record))
        yield


def _first_activity(agent: Any) -> str:
    if model_client_of(agent) is not None:
        return "waits for the model"
    return "works" if executor_of(agent) is None else "runs code"


def _noting_turn(agent: Any, record: RunRecord) -> Callable[..., AsyncGenerator[Any, None]]:
    take_turn = agent.on_messages_stream

    async def noted(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        record.begin(agent.name, _first_activity(agent))
        async with aclosing(take_turn(*args, **kwargs)) as items:
            async for item in items:
                yield item

    return noted


def _noting_run(name: str, execute: Callable[..., Any], record: RunRecord, watch: Watch) -> Callable[..., Any]:
    def show(chunk: OutputChunk) -> None:
        watch(ModelClientStreamingChunkEvent(content=chunk.text, source=name, metadata={keys.EVENT: keys.OUTPUT}))

    live = {"on_output": show} if "on_output" in inspect.signature(execute).parameters else {}

    async def noted(*args: Any, **kwargs: Any) -> CodeResult:
        record.begin_code(name)
        blocks = args[0] if args else kwargs["code_blocks"]
        request = {"blocks": [[block.language, block.code] for block in blocks]}
        result: CodeResult = await once(
            CODE,
            request,
            lambda: execute(*args, **kwargs, **live),
            lambda result: {"exit_code": result.exit_code, "output": result.output},
            lambda known: CodeResult(**known),
        )
        record.end_code(name, result)
        return result

    return noted


def _noting_question(name: str, ask: Any, record: RunRecord) -> Any:
    async def noted(*args: Any, **kwargs: Any) -> str:
        async def ask_now() -> str:
            record.begin(name, "waits for a person")
            # A team passes messages on with a short delay.
            await asyncio.sleep(_SETTLE_SECONDS)
            with asking():
                answer: str = await ask(*args, **kwargs)
            return answer

        return await once("input", {}, ask_now, str, str)

    return noted
