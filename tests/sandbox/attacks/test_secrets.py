# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""What the host knows and code must not: its environment, its command line, its files, what others have written."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import pytest

from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import attempt

# The secret is told in halves, so that the code that looks for it is not what it finds.
LOOK = """
import os, sys
secret = (HALF + FLAH).encode()
found = [name for name, value in os.environb.items() if secret in value]
for name in os.listdir("/proc"):
    if name.isdigit():
        for part in ("environ", "cmdline"):
            try:
                if secret in open("/proc/%s/%s" % (name, part), "rb").read(): found.append((name, part))
            except OSError: pass
for top in ("/etc", "/run", "/var", "/tmp", "/home", "/root", "/srv", "/mnt", "/opt", "/dev/shm", "/workspace", FOLDER):
    for folder, folders, names in os.walk(top):
        # The interpreter is everybody's, and large.
        folders[:] = [name for name in folders if os.path.join(folder, name) not in (sys.prefix, sys.base_prefix)]
        for name in names[:200]:
            try:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and secret in open(path, "rb").read(1 << 16): found.append(path)
            except OSError: pass
found
"""
MEMORY = """
import re
secret = (HALF + FLAH).encode()
del HALF, FLAH
count = size = 0
with open("/proc/self/mem", "rb", 0) as memory:
    for line in open("/proc/self/maps"):
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        if line.split()[1][0] != "r" or "[v" in line: continue
        while begin < end:
            try:
                memory.seek(begin)
                data = memory.read(min(1 << 20, end - begin))
            except (OSError, OverflowError, ValueError): break
            count += data.count(secret[:20]); size += len(data)
            begin += 1 << 20
            del data
(count, size)
"""
NAMES = [
    "OPENAI_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "HOME_OF_SECRETS",
    "LD_PRELOAD_SECRET",
    "PYTHONSTARTUP",
    "PYTHONPATH_X",
]


async def look(wall: str, folder: str) -> dict[str, Any]:
    secret = secrets.token_hex(24)
    for name in NAMES:
        os.environ[name] = secret
    home = Path(os.environ["HOME"])
    for place in (home / ".netrc", Path(folder) / "secret.txt", Path("/dev/shm") / f"attack-{secret[:6]}"):
        place.write_text(secret)
    try:
        halves = f"HALF, FLAH, FOLDER = {secret[:24]!r}, {secret[24:]!r}, {folder!r}\n"
        async with Sandbox(wall) as sandbox:
            found = await attempt(sandbox, halves + LOOK, 30)
            shell = await attempt(sandbox, "env; cat /proc/*/environ", 10, language="sh")
            memory = await attempt(sandbox, halves.replace(secret[:20], "", 1) + "HALF = ''\n" + MEMORY, 30)
            names = (await attempt(sandbox, "import os\nsorted(os.environ)"))["value"]
        return {
            "found": found["value"] if found["outcome"] == "ok" else found,
            "shell": secret in shell["output"],
            "memory": memory,
            "names": names,
            "listed": [name for name in NAMES if name in names],
        }
    finally:
        Path("/dev/shm", f"attack-{secret[:6]}").unlink()


def test_nothing_of_the_hosts_is_there(caged: Caged, tmp_path: Path) -> None:
    found = caged(look, str(tmp_path))
    assert found["found"] == []
    assert not found["shell"]
    assert found["listed"] == []


async def search_memory(wall: str) -> Any:
    """The worker's memory has no copy of the host's environment."""
    secret = secrets.token_hex(24)
    os.environ["OPENAI_API_KEY"] = secret
    # What the code is told is not what it looks for: each byte is one more.
    shifted = [ord(letter) + 1 for letter in secret]
    code = f"HALF = ''.join(chr(number - 1) for number in {shifted})\nFLAH = ''\n{MEMORY}"
    async with Sandbox(wall) as sandbox:
        with_it = await attempt(sandbox, f"kept = bytes(number - 1 for number in {shifted})\n{code}", 30)
        return [with_it, await attempt(sandbox, code, 30)]


def test_the_workers_memory_has_no_secrets(caged: Caged) -> None:
    with_it, without = caged(search_memory)
    assert without["value"][1] > 1 << 20, without
    # The code itself has made some; one more where it keeps one more.
    assert with_it["value"][0] > without["value"][0], (with_it, without)
    assert without["value"][0] <= 4, without


LEAVE = {
    "attributes": ("os.setxattr(place, 'user.left', b'left')", "left |= bool(os.listxattr(place))"),
    "rights": ("os.chmod(place, 0o700)", "left |= os.stat(place).st_mode & 0o777 == 0o700"),
    "an access list": (
        "os.setxattr(place, 'system.posix_acl_default', bytes.fromhex('02000000010007ffffffffff04000700ffffffff20000700ffffffff'))",
        "left |= 'system.posix_acl_default' in os.listxattr(place)",
    ),
    "a group bit": ("os.chmod(place, 0o2777)", "left |= bool(os.stat(place).st_mode & 0o2000)"),
    "files": ("open(place + '/left', 'w').write('x')", "left |= 'left' in os.listdir(place)"),
    "hidden files": ("open(place + '/.left', 'w').write('x')", "left |= '.left' in os.listdir(place)"),
    "a full disk": (
        "open(place + '/left', 'wb').write(b'x' * 50_000_000)",
        "left |= os.statvfs(place).f_blocks - os.statvfs(place).f_bfree > 1000",
    ),
}


async def leave(wall: str, write: str, read: str) -> Any:
    loop = "import os\nleft = False\nfor place in ('/tmp', '/dev/shm', '/workspace'):\n    try: {}\n    except OSError: pass\nleft"
    async with Sandbox(wall, concurrency=1) as sandbox:
        before = await attempt(sandbox, loop.format(read))
        await attempt(sandbox, loop.format(write))
        after = [(await attempt(sandbox, loop.format(read)))["value"] for _ in range(3)]
        return [before["value"], after]


@pytest.mark.parametrize("name", LEAVE)
def test_nothing_is_left_for_the_next_one(caged: Caged, name: str) -> None:
    assert caged(leave, *LEAVE[name]) == [False, [False] * 3]
