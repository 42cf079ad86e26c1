"""An agent whose actions are code: it calls functions of this program, and remembers what it defined a turn before.

    python examples/code_act.py                        a recorded model, so no key is needed
    python examples/code_act.py --model openai:gpt-4o  a real one

The functions run here, the code behind the sandbox's wall. What the model says is shown as it says it.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from autogen_agentchat.messages import CodeExecutionEvent, ModelClientStreamingChunkEvent, TextMessage

from coderoom.agents import CodeActAgent
from coderoom.configs import make_model

RECORDING = f"replay:{Path(__file__).with_suffix('.replay.yaml')}"
TASKS = [
    "Calculate the sum of all numbers from 1 to 10.",
    "Add 5 and 3, then multiply the result by 2.",
    "Calculate the sum of the first 10 Fibonacci numbers.",
    "And of the first 20?",
]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def subtract(a: int, b: int) -> int:
    """Subtract the second number from the first."""
    return a - b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def divide(a: int, b: int) -> float:
    """Divide the first number by the second."""
    return a / b


async def ask(agent: CodeActAgent, task: str) -> None:
    """Put a task to the agent, and show what it says, what its code gives, and what it was that ended the turn."""
    print(f"User: {task}")
    async for item in agent.run_stream(task=task):
        if isinstance(item, ModelClientStreamingChunkEvent):
            if item.metadata.get("coderoom.event") != "output":  # That comes below, with the value.
                print(item.content, end="", flush=True)
        elif isinstance(item, CodeExecutionEvent):
            print(f"\n[exit code {item.result.exit_code}] {item.result.output}", end="")
        elif isinstance(item, TextMessage) and item.source == agent.name:
            print(f"\n({item.metadata['coderoom.stop_reason']})\n")


async def main(named: str) -> None:
    """Go through the tasks with one agent."""
    model = make_model(named)
    agent = CodeActAgent(
        "calculator",
        model,
        tools=[add, subtract, multiply, divide],
        model_client_stream=True,
    )
    try:
        for task in TASKS:
            await ask(agent, task)
    finally:
        await agent.close()
        await model.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help="openai:NAME, ollama:NAME, anthropic:NAME, replay:FILE or a YAML file")
    chosen = parser.parse_args().model
    if chosen is None:
        print("The model is a recording: its words were written beforehand, all else is real.", file=sys.stderr)
    asyncio.run(main(chosen or RECORDING))
