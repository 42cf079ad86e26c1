"""Which model an example asks: that of --model or of the environment, or else the recording beside the script."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from autogen_core.models import ChatCompletionClient

from coderoom.configs import default_model, make_model


def run(main: Callable[[ChatCompletionClient], Awaitable[None]], script: str) -> None:
    """Run an example with its model, and close that at the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help="openai:NAME, ollama:NAME, anthropic:NAME, replay:FILE or a YAML file")
    named = parser.parse_args().model
    if named is None and not (os.environ.get("OPENAI_API_KEY") or os.environ.get("CODEROOM_MODEL")):
        print("The model is a recording: its words were written beforehand, all else is real.", file=sys.stderr)
        named = f"replay:{Path(script).with_suffix('.replay.yaml')}"
    asyncio.run(_run(main, named or default_model()))


async def _run(main: Callable[[ChatCompletionClient], Awaitable[None]], named: str) -> None:
    model = make_model(named)
    try:
        await main(model)
    finally:
        await model.close()
