"""The process inside a cage: runs the host's side of an attack, and writes down what came of it."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

__all__: list[str] = []


async def _drive(name: str, arguments: list[Any], errors: list[str]) -> Any:
    def note(_: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = "".join(traceback.format_exception(error)) if error is not None else ""
        errors.append(f"{context.get('message')}: {error!r}\n{text[-3000:]}")

    asyncio.get_running_loop().set_exception_handler(note)
    module, _, function = name.partition(":")
    return await getattr(importlib.import_module(module), function)(*arguments)


def main() -> None:
    """Run what the command line names."""
    name, arguments, answer = sys.argv[1:]
    if "none" in json.loads(arguments):
        raise SystemExit("attacks never run without a wall")
    errors: list[str] = []
    told: dict[str, Any] = {"errors": errors}
    try:
        told["value"] = asyncio.run(_drive(name, json.loads(arguments), errors))
    except BaseException:
        told["raised"] = traceback.format_exc()[-6000:]
    Path(answer).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
