"""An episode with a server of OpenEnv: tries some code, and submits answers that tests judge.

It needs `pip install 'coderoom[openenv]'`. The answers stand here in place of a model's.
"""

import asyncio
import socket
import threading

import uvicorn
from openenv import GenericEnvClient

from coderoom.integrations.openenv import code_app

ANSWERS = ("def twice(n):\n    return n\n", "def twice(n):\n    return 2 * n\n")


async def episode(url: str, answer: str) -> None:
    """Try the answer's code, and submit it."""
    async with GenericEnvClient(url) as client:
        await client.reset(tests=["assert twice(2) == 4", "assert twice(-1) == -2"])
        await client.step({"code": answer})
        tried = await client.step({"code": "twice(2)"})
        result = await client.step({"code": answer, "submit": True})
        print(tried.observation["value"], result.reward, result.done)


async def main() -> None:
    """Serve the environment, and do the episodes at the same time."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(code_app(), log_level="error"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        await asyncio.gather(*(episode(f"http://127.0.0.1:{listening.getsockname()[1]}", each) for each in ANSWERS))
        server.should_exit = True
        await asyncio.to_thread(thread.join)


asyncio.run(main())
