"""The worker of the walls made of mounts and namespaces, before any code runs in a room."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from coderoom.sandbox.guest.isolation.boot import descendants

from ..places import STRONGEST
from .behind import STUB, USERS, Started, behind

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
    pytest.mark.parametrize("user", USERS),
    pytest.mark.parametrize(
        "wall",
        [
            pytest.param(wall, marks=[] if wall == STRONGEST.wall else pytest.mark.allwalls)
            for wall in ("bubblewrap", "namespaces")
        ],
    ),
]


def test_the_worker_is_nobody_on_the_host(wall: str, user: str) -> None:
    others = set(descendants(os.getpid()))  # Of sandboxes that tests share.

    async def check(it: Started) -> None:
        new = [pid for pid in descendants(os.getpid()) if pid not in others]
        ours = [pid for pid in new if b"CONTROL" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        worker = ours[-1]
        status = Path(f"/proc/{worker}/status").read_text()
        facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        users = set(facts["Uid"].split())
        assert users == {str(os.geteuid())} if os.geteuid() else "0" not in users
        assert int(facts["CapEff"], 16) == int(facts["CapPrm"], 16) == 0
        assert facts["NoNewPrivs"] == "1"
        if os.geteuid() == 0:
            assert facts["Groups"].strip() == ""

    behind(wall, user, check)


def test_a_room_can_have_namespaces_of_its_own(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        if it.inside.worker.boot["rooms"] == "plain":
            pytest.skip("not on this machine")
        code = "from coderoom_guest.isolation import boot; r = boot._in_child(boot._nest)"
        assert await it.inside.ask(code) == ""

    behind(wall, user, check)


def test_nothing_of_the_host_is_open(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        code = (
            "import os\nr = []\n"
            "for name in os.listdir('/proc/self/fd'):\n"
            "    try: r.append(os.readlink('/proc/self/fd/' + name).split(':')[0])\n"
            "    except FileNotFoundError: pass"
        )
        assert sorted(await it.inside.ask(code)) == ["/dev/null", "/dev/null", "pipe", "socket"]

    with Path(__file__).open("rb") as kept:
        os.set_inheritable(kept.fileno(), True)
        behind(wall, user, check)


# What a kernel before 5.12 says to open_tree, move_mount and mount_setattr, which have the same numbers everywhere.
_OLD_KERNEL = """
import ctypes, struct
steps = [(0x20, 0, 0, 0)]
for number in (428, 429, 442):
    steps += [(0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | 38)]
steps += [(0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("@HP", len(steps), ctypes.addressof(code)), 0, 0) == 0
"""


def test_mounts_of_an_older_kernel(wall: str, user: str) -> None:
    if wall != "namespaces" or (user == "self" and os.geteuid() == 0):
        return  # There nothing is done in another way.

    async def check(it: Started) -> None:
        assert await it.inside.attempt("open('/usr/x', 'w')") == "OSError"
        assert await it.inside.attempt("open('/workspace/x', 'w').write('y')") == 1

    behind(wall, user, check, program=f"exec({_OLD_KERNEL!r}); {STUB}")
