"""What the tests of `CodeActAgent` share: functions of the host that note their calls, and ways to look at a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, CodeExecutionEvent, CodeGenerationEvent
from autogen_core import CancellationToken, Component
from autogen_core.models import ChatCompletionClient, UserMessage
from autogen_core.tools import BaseTool, FunctionTool
from pydantic import BaseModel

from coderoom.agents import CodeActAgent
from tests.agents.helpers import Item, texts

SLEEPS = "import time\nprint('begun', flush=True)\nopen('begun', 'w').close()\ntime.sleep(300)"


def execute(code: str) -> str:
    return f"<execute>\n{code}\n</execute>"


class MakeActor(Protocol):
    """Makes an agent whose sandbox works in the test's folder; the test's end closes it."""

    def __call__(self, client: ChatCompletionClient, **arguments: Any) -> CodeActAgent: ...


@dataclass
class Shop:
    """Functions of the host; the calls that reached them are written down."""

    calls: list[str] = field(default_factory=list)
    waits: asyncio.Event = field(default_factory=asyncio.Event)
    ended: list[str] = field(default_factory=list)

    def price(self, item: str) -> float:
        """What an item costs, in euros."""
        self.calls.append(f"price({item})")
        return {"apple": 0.5, "pear": 0.75}[item]

    async def order(self, item: str, number: int = 1) -> dict[str, Any]:
        """Order some of an item.

        The order cannot be taken back.
        """
        self.calls.append(f"order({item}, {number})")
        return {"item": item, "number": number, "id": len(self.calls)}

    async def wait(self) -> None:
        """Wait for the delivery."""
        self.calls.append("wait()")
        self.waits.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append("wait()")

    @property
    def functions(self) -> list[Callable[..., Any]]:
        return [self.price, self.order, self.wait]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Pair(BaseModel):
    first: int
    second: int


class Product(BaseModel):
    value: int


class MultiplyConfig(BaseModel):
    factor: int = 1


class Multiply(BaseTool[Pair, Product], Component[MultiplyConfig]):
    """A tool of a user's own, which can stand in a config."""

    component_type = "tool"
    component_config_schema = MultiplyConfig
    component_provider_override = "tests.agents.acting.Multiply"

    def __init__(self, factor: int = 1) -> None:
        super().__init__(Pair, Product, "multiply", "Multiply two numbers.")
        self.factor = factor

    async def run(self, args: Pair, cancellation_token: CancellationToken) -> Product:
        return Product(value=args.first * args.second * self.factor)

    def _to_config(self) -> MultiplyConfig:
        return MultiplyConfig(factor=self.factor)

    @classmethod
    def _from_config(cls, config: MultiplyConfig) -> Multiply:
        return cls(config.factor)


def subtraction() -> FunctionTool:
    def subtract(a: int, b: int) -> int:
        return a - b

    return FunctionTool(subtract, "Subtract two numbers.")


async def there_is(path: Path) -> None:
    async with asyncio.timeout(30):
        while not path.exists():
            await asyncio.sleep(0.01)


async def remembered(agent: CodeActAgent) -> list[str]:
    return texts(await agent.model_context.get_messages())


async def pictures_in(agent: CodeActAgent) -> int:
    messages = [message for message in await agent.model_context.get_messages() if isinstance(message, UserMessage)]
    return sum(not isinstance(part, str) for message in messages for part in message.content)


def outputs(items: Sequence[Item] | Iterable[BaseAgentEvent | BaseChatMessage]) -> list[str]:
    """What the pieces of code of a turn printed."""
    return [item.result.output for item in items if isinstance(item, CodeExecutionEvent)]


def codes(items: Sequence[Item] | Iterable[BaseAgentEvent | BaseChatMessage]) -> list[list[str]]:
    return [[block.code for block in item.code_blocks] for item in items if isinstance(item, CodeGenerationEvent)]
