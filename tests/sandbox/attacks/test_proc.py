# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""What `/proc` and `/sys` tell, and what can be written there."""

from __future__ import annotations

from typing import Any

from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import attempt, still_works

OTHERS = """
import os
found = []
for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
    if pid in (os.getpid(), *MINE): continue
    if pid != 1: found.append((pid, open("/proc/%d/cmdline" % pid).read())); continue
    for name in ("environ", "mem", "maps", "smaps", "auxv", "pagemap", "io", "stack", "syscall", "personality", "map_files", "fd/0", "fdinfo/0", "ns/pid",
                 "root/etc/passwd", "cwd/etc/passwd", "exe", "attr/current", "mountinfo/x", "timers", "clear_refs"):
        try: data = open("/proc/1/" + name, "rb").read(100) if name != "fd/0" else os.readlink("/proc/1/fd/0")
        except OSError: continue
        if data and name not in ("attr/current", "auxv"): found.append((name, repr(data)))
    for name in ("mem", "oom_score_adj", "clear_refs", "comm", "coredump_filter", "uid_map", "sched", "autogroup", "timerslack_ns", "setgroups", "reclaim", "attr/exec"):
        try:
            with open("/proc/1/" + name, "r+b") as file: file.write(b"1")
        except OSError: continue
        found.append(name)
found
"""
SYSTEM = """
import os
written = []
for top in ("/proc/sys", "/sys", "/proc/fs", "/proc/irq", "/proc/bus", "/proc/acpi", "/proc/scsi", "/proc/tty"):
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            try:
                with open(path, "rb") as file: same = file.read(100)
                with open(path, "wb") as file: file.write(same)
            except OSError: continue
            written.append(path)
for name in ("sysrq-trigger", "kcore", "kmsg", "mtrr", "timer_list", "kpageflags", "kallsyms", "slabinfo", "sched_debug", "keys", "config.gz"):
    for mode in ("wb", "rb"):
        try:
            with open("/proc/" + name, mode) as file:
                if mode == "wb" or (name in ("kcore", "kmsg", "slabinfo") and file.read(1)): written.append((name, mode))
        except OSError: pass
written
"""
ITSELF = """
import os
written = []
for name, text in (("uid_map", "0 0 1"), ("gid_map", "0 0 1"), ("setgroups", "allow"), ("oom_score_adj", "-1000"),
                   ("oom_adj", "-17"), ("attr/current", "unconfined"), ("attr/exec", "unconfined"), ("loginuid", "0"), ("make-it-fail", "1")):
    try:
        with open("/proc/self/" + name, "w") as file: file.write(text)
    except OSError: continue
    written.append(name)
written
"""
LINKS = """
import glob, os
found = []
for link in glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd") + glob.glob("/proc/[0-9]*/task/*/root"):
    for up in ("", "/..", "/../../.."):
        try:
            if MARK in os.listdir(link + up + FOLDER): found.append(link + up)
        except OSError: pass
        try:
            if os.path.exists(link + up + "/root/.ssh") or os.path.exists(link + up + "/boot/vmlinuz"): found.append(link + up)
        except OSError: pass
found
"""


async def read(wall: str, folder: str, mark: str) -> dict[str, Any]:
    async with Sandbox(wall) as sandbox:
        fresh = (await attempt(sandbox, "MINE = []\n" + OTHERS))["value"]
        async with sandbox.session() as session, sandbox.session() as other:
            await other.run("import os\nPID = os.fork()\nif not PID:\n    import time\n    time.sleep(20)")
            await session.run("1")
            kept = (await attempt(session, "MINE = []\n" + OTHERS))["value"]
        system = await attempt(sandbox, SYSTEM, 30)
        itself = (await attempt(sandbox, ITSELF))["value"]
        links = (await attempt(sandbox, f"FOLDER, MARK = {folder!r}, {mark!r}\n{LINKS}"))["value"]
        return {
            "fresh": fresh,
            "kept": kept,
            "system": system["value"] if system["outcome"] == "ok" else system,
            "itself": itself,
            "links": links,
            "works": await still_works(sandbox),
        }


def test_proc_gives_nothing_away(caged: Caged, tmp_path: Any) -> None:
    (tmp_path / "canary").write_text("x")
    found = caged(read, str(tmp_path), "canary")
    assert found == {"fresh": [], "kept": [], "system": [], "itself": [], "links": [], "works": True}
