"""A stub in the place of the worker that runs what tests send it, so that only the wall is tested."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coderoom.sandbox import guest
from coderoom.sandbox.walls.docker.engine import DockerWorker

__all__ = ["ask", "write_stub"]

_STUB = """
import array, json, os, socket, sys

def serve(fd):
    sock = socket.socket(fileno=fd)
    while True:
        code, ancillary, _, _ = sock.recvmsg(65536, 1024)
        if not code:
            return
        fds = array.array("i")
        for _, _, content in ancillary:
            fds.frombytes(content)
        names = {"fds": list(fds), "os": os, "sys": sys}
        try:
            exec(code.decode(), names)
            answer = names.get("answer")
        except Exception as error:
            answer = type(error).__name__
        sock.send(json.dumps(answer).encode())
"""


def write_stub(folder: Path) -> Path:
    """Write the worker's code, and return its folder."""
    code = folder / "guest"
    code.mkdir()
    (code / "__init__.py").touch()
    (code / "forks.py").write_text("def collect_hooks(): pass\n", encoding="utf-8")
    (code / "worker.py").write_text(_STUB, encoding="utf-8")
    shutil.copy(Path(guest.__file__).parent / "main.py", code)
    code.chmod(0o755)
    for path in code.iterdir():
        path.chmod(0o644)
    return code


async def ask(worker: DockerWorker, code: str, fds: Sequence[int] = ()) -> Any:
    """Run code in the worker and return what it set `answer` to, or the name of the exception."""
    socket.send_fds(worker.control, [code.encode()], fds)
    return json.loads(await asyncio.get_running_loop().sock_recv(worker.control, 262_144))
