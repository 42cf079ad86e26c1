"""Writing changes into a folder on a disk that gets full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WRITES = """
import os, sys
from coderoom.sandbox.overlay.tree import Node, Tree, open_folder
from coderoom.sandbox.overlay.writing import write
for number in range(10):
    open(f"{number}", "w").write("kept")
here, folder = Tree(open_folder(".")), Node("folder", 0o755, 0, (), 0)
paths = ["/".join(map(str, range(number, end))) for number in range(10) for end in range(number + 1, 13)]
try:
    write(here, {path: (folder, here) for path in paths})
except OSError as error:
    print(error.strerror, [open(f"{number}").read() for number in range(10)] == ["kept"] * 10, len(os.listdir()))
"""

FAILS_LATE = """
import os, sys
from coderoom.sandbox.overlay import mirror
os.makedirs("here/gone/deep"), os.mkdir("here/sub"), os.makedirs("there/sub")
for name, text in {"here/changed": "1", "here/gone/deep/file": "2", "here/turned": "3", "here/sub/file": "4",
                   "there/changed": "new", "there/made": "new", "there/sub/file": "new"}.items():
    open(name, "w").write(text)
os.mkdir("there/turned"), os.symlink("changed", "here/link"), os.chmod("here/gone", 0o500)
os.system("mount --bind here/sub here/sub && mount -o remount,ro,bind here/sub")
def look():
    return [(path, os.lstat(path).st_mode, sorted(folders), [open(f"{path}/{name}").read() for name in sorted(files)])
            for path, folders, files in sorted(os.walk("here"))]
before = look()
try:
    mirror(os.open("there", os.O_RDONLY), "here", ())
except ValueError as error:
    print(type(error).__name__, look() == before)
"""


def test_what_fails_late_is_undone(tmp_path: Path) -> None:
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", FAILS_LATE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "RequestError True\n"


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o nr_inodes=40 tmpfs "$1" && cd "$1" && exec "$2" -c "$3"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(tmp_path)]
    done = subprocess.run([*command, sys.executable, WRITES], capture_output=True, text=True, check=True)
    assert done.stdout == "No space left on device True 10\n"
