# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""System calls by other doors: machine code, the 32-bit and the x32 interface, and those that are refused outright."""

from __future__ import annotations

import platform
from typing import Any

import pytest

from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import attempt, still_works

RUN = """
import ctypes, mmap
def call(code):
    m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    m.write(bytes.fromhex(code))
    return ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()
"""
# mov eax, NUMBER; int 0x80; ret
OLD = "b8{number}cd80c3"
# mov eax, NUMBER; syscall; ret
NEW = "b8{number}0f05c3"
# mov rax, NUMBER with something above; xor edi, edi; xor esi, esi; syscall; ret
WIDE = "48b8{number}0100000031ff31f60f05c3"
ENDED = {
    "int 0x80: getpid": OLD.format(number="14000000"),
    "int 0x80: socketcall": OLD.format(number="66000000"),
    "int 0x80: mount": OLD.format(number="15000000"),
    "int 0x80: ptrace": OLD.format(number="1a000000"),
    "int 0x80: unshare": OLD.format(number="36010000"),
    "x32: getpid": NEW.format(number="27000040"),
    "x32: ptrace": NEW.format(number="09020040"),
    "x32: execve": NEW.format(number="08020040"),
    "sysenter": "b8140000000f34c3",
    # A far return into a 32-bit segment, where `syscall` or `int 0x80` has the old numbers.
    "a 32-bit segment": "6a23488d0503000000504 8cbb814000000cd80c3".replace(" ", ""),
    "a ring of its own": "0f30c3",  # wrmsr
    "no instruction": "0f0b",
    "nowhere": "31c0ffe0",
}
REFUSED = {
    "mount with more bits": WIDE.format(number="a5000000"),
    "ptrace with more bits": WIDE.format(number="65000000"),
    "unshare with more bits": WIDE.format(number="10010000"),
    "iopl": "b8ac000000bf030000000f05c3",
}
intel = pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code for x86_64")


async def execute(wall: str, codes: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with Sandbox(wall) as sandbox, sandbox.session() as session:
        await session.run("x = 1")
        mark = await session.checkpoint()
        for name, code in codes.items():
            once = await attempt(sandbox, f"{RUN}\ncall({code!r})", 5)
            kept = await attempt(session, f"{RUN}\ncall({code!r})", 5)
            await session.rollback(mark)
            found[name] = {"once": once, "kept": kept, "back": (await attempt(session, "x"))["value"]}
        assert await still_works(sandbox)
    return found


@intel
def test_the_process_is_ended(caged: Caged) -> None:
    for name, found in caged(execute, ENDED).items():
        assert found["back"] == 1
        for which in ("once", "kept"):
            assert found[which]["error"] == "Signal", (name, found)
            if ":" in name:
                assert found[which]["exit_code"] == 128 + 31, (name, found)  # SIGSYS


@intel
def test_more_bits_do_not_help(caged: Caged) -> None:
    for name, found in caged(execute, REFUSED).items():
        assert found["once"]["value"] in (-1, -38), (name, found)


CALLS = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
worked = []
for number in NUMBERS:
    for arguments in ((0,) * 6, (-1,) * 6):
        if libc.syscall(number, *map(ctypes.c_long, arguments)) != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
            worked.append((number, ctypes.get_errno()))
worked
"""
# As in the kernel's table for x86_64: what changes the machine, other processes, or namespaces.
NUMBERS = [
    101, 103, 134, 153, 154, 155, 159, 161, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 174, 175, 176,
    177, 178, 179, 180, 212, 227, 246, 248, 249, 250, 272, 298, 300, 303, 304, 305, 308, 310, 311, 312, 313, 319,
    320, 321, 323, 425, 426, 427, 428, 429, 430, 431, 432, 433, 435, 437, 438, 440, 442, 443, 447, 457, 458, 467, 470,
    29, 30, 31, 64, 65, 66, 67, 68, 69, 70, 71, 220, 240, 241, 600, 1000, 0x3FFFFFFF,
]  # fmt: skip


async def call(wall: str, numbers: list[int]) -> Any:
    async with Sandbox(wall) as sandbox:
        result = await attempt(sandbox, f"NUMBERS = {numbers}\n{CALLS}")
        return result["value"] if await still_works(sandbox) else result


@intel
def test_what_changes_the_machine_is_refused(caged: Caged) -> None:
    assert caged(call, NUMBERS) == []


SHARED = """
import ctypes
context = ctypes.c_ulong(0)
ctypes.CDLL(None, use_errno=True).syscall(206, 1, ctypes.byref(context))  # io_setup
"""


async def use_up(wall: str) -> Any:
    async with Sandbox(wall) as sandbox:
        return (await attempt(sandbox, SHARED, 20))["value"]


@intel
def test_what_the_whole_machine_shares_is_not_used_up(caged: Caged) -> None:
    # There are 65,536 events of asynchronous input and output for everybody on the machine.
    assert caged(use_up) == -1
