"""Repositories in all states, and models that change them in good and bad ways, for the tests of `coderoom fix`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

SHOP = 'def total(prices):\n    return sum(prices[1:])\n\n\ndef names(text):\n    return text.split(",")\n'
TESTS = """\
from shop import names, total


def test_total():
    assert total([1, 2]) == 3


def test_one():
    assert total([4]) == 4


def test_names():
    assert names("a,b") == ["a", "b"]
"""
UNITTESTS = """\
import unittest
from shop import names, total


class Tests(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2]), 3)

    def test_names(self):
        self.assertEqual(names("a,b"), ["a", "b"])
"""
TEST = "python3 -m pytest -q --disable-plugin-autoload"
HONEST = "edit_file('shop.py', 'prices[1:]', 'prices')\n"
PATCHED_PYTEST = """\
import _pytest.reports
import _pytest.runner

def passing(item, call):
    report = made(item, call)
    report.outcome, report.longrepr = "passed", None
    return report

made = _pytest.reports.TestReport.from_item_and_call
_pytest.reports.TestReport.from_item_and_call = staticmethod(passing)
"""


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody."""
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]
    command = ["git", *who, "-c", "init.defaultBranch=main", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files with their folders."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def plain(folder: Path) -> None:
    """A shop with a bug, without git."""
    write(folder, {"shop.py": SHOP, "test_shop.py": TESTS, "notes.txt": "one\ntwo\n"})


def committed(folder: Path) -> None:
    """The same, all of it committed."""
    plain(folder)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Begin.")


@dataclass(frozen=True)
class Scenario:
    """A repository in a state, what a model does in it, and what has to come of it.

    Attributes:
        cell: The code of the model.
        prepare: Makes the state in an empty folder.
        succeeds: Whether it is a fix.
        changes: What has to be in the patch.
        tests: What of it belongs to the tests.
        left_out: What has to be named as not in the patch.
        below: The folder below the repository that is fixed.
        test: The test command.
        lies: Whether the changed code lies to its tests, so that the tests cannot be asked for the truth.
    """

    cell: str
    prepare: Callable[[Path], None] = committed
    succeeds: bool = True
    changes: tuple[str, ...] = ("changed shop.py",)
    tests: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    below: str = ""
    lies: bool = False
    test: str = TEST


def _with(
    files: Mapping[str, str | bytes], *commands: tuple[str, ...], after: Mapping[str, str | bytes] | None = None
) -> Callable[[Path], None]:
    """A state: the committed shop with more files that are committed, too, then commands of git, then other files."""

    def prepare(folder: Path) -> None:
        plain(folder)
        write(folder, files)
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "Begin.")
        for command in commands:
            git(folder, *command)
        write(folder, after or {})

    return prepare


def _uncommitted(folder: Path) -> None:
    committed(folder)
    write(folder, {"shop.py": "# Staged.\n" + SHOP})
    git(folder, "add", "shop.py")
    write(folder, {"shop.py": "# Staged.\n# And changed.\n" + SHOP, "new.py": "x = 1\n", "notes.txt": "two\n"})


def _unborn(folder: Path) -> None:
    plain(folder)
    git(folder, "init", "-q")
    git(folder, "add", "shop.py")


def _submodule(folder: Path) -> None:
    other = folder.parent / "other"
    other.mkdir()
    write(other, {"lib.py": "x = 1\n", ".gitignore": "*.log\n"})
    git(other, "init", "-q")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "Begin.")
    committed(folder)
    git(folder, "submodule", "--quiet", "add", str(other), "lib")
    git(folder, "commit", "-qm", "Add lib.")


def _worktree(folder: Path) -> None:
    main = folder.parent / "main"
    main.mkdir()
    committed(main)
    folder.rmdir()
    git(main, "worktree", "add", "-q", "-b", "topic", str(folder))


def _below(folder: Path) -> None:
    inside = folder / "packages" / "a b"
    inside.mkdir(parents=True)
    plain(inside)
    write(folder, {".gitignore": "out/\n", "README": "Two packages.\n"})
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Begin.")


def _names(folder: Path) -> None:
    committed(folder)
    write(folder, {'a "quoted" name.txt': "1\n", "zwei Wörter.txt": "1\n", "a\nline": "1\n", "tab\there": "1\n"})
    Path(os.fsdecode(os.fsencode(folder) + b"/latin-\xe9.txt")).write_text("1\n")
    write(folder, {"empty": "", "no newline": "1", ":(top)magic": "1\n", "-dash": "1\n", " blank ": "1\n"})
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Names.")


def _ignoring_without_git(folder: Path) -> None:
    plain(folder)
    write(folder, IGNORING)


def _sparse(folder: Path) -> None:
    committed(folder)
    with (folder / "disk.img").open("wb") as file:
        file.truncate(40 << 30)
    os.mkfifo(folder / "pipe")
    (folder / "gone").symlink_to("nowhere")
    (folder / ".links").mkdir()  # Where pytest looks for no tests.
    (folder / ".links" / "loop").symlink_to("..")


CRLF = SHOP.replace("\n", "\r\n")
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 12345\n"
IGNORING = {".gitignore": "build/\n.venv/\nnode_modules\n*.log\n!kept.log\n"}
BARE = {"store/HEAD": "ref: refs/heads/main\n", "store/config": "[core]\n\tbare = true\n", "store/objects/x": "1\n"}
BARE |= {"store/refs/x": "1\n"}
_APPEND = "open({!r}, 'a').write('more\\n')\n"
SCENARIOS: dict[str, Scenario] = {
    # What models do.
    "nothing": Scenario("print(1)\n", succeeds=False, changes=()),
    "breaks other tests": Scenario(HONEST + "edit_file('shop.py', '\",\"', '\";\"')\n", succeeds=False),
    "does not fix": Scenario("edit_file('shop.py', 'prices[1:]', 'prices[:1]')\n", succeeds=False),
    "does not compile": Scenario("open('shop.py', 'w').write('def total(')\n", succeeds=False),
    "edits the test": Scenario(
        "edit_file('test_shop.py', '== 3', '== 2')\nedit_file('test_shop.py', '[4]) == 4', '[4]) == 0')\n",
        succeeds=False,
        changes=("changed test_shop.py",),
        tests=("changed test_shop.py",),
    ),
    "adds a test": Scenario(
        HONEST + "write_file('test_more.py', 'def test_more():\\n    pass\\n')\n",
        changes=("changed shop.py", "added test_more.py"),
        tests=("added test_more.py",),
    ),
    "deletes all": Scenario(
        "import os\nfor each in os.listdir('.'):\n    each[0] == '.' or os.remove(each)\n",
        succeeds=False,
        changes=("deleted notes.txt", "deleted shop.py", "deleted test_shop.py"),
        tests=("deleted test_shop.py",),
    ),
    "configures tests": Scenario(
        "for name, text in {\n"
        "    'conftest.py': 'import pytest\\n@pytest.hookimpl(tryfirst=True)\\ndef pytest_pyfunc_call():\\n"
        "    return True\\n',\n"
        "    'pytest.ini': '[pytest]\\naddopts = -k names\\n', 'sitecustomize.py': 'import os\\nos._exit(0)\\n',\n"
        "    'setup.cfg': '[tool:pytest]\\naddopts = -k names\\n', 'tox.ini': '[pytest]\\naddopts = -k names\\n',\n"
        "    'pytest.py': '', 'json.py': '', '_pytest/__init__.py': '',\n"
        "}.items():\n    write_file(name, text)\n",
        succeeds=False,
        changes=tuple(
            f"added {name}"
            for name in (
                *("_pytest/__init__.py", "conftest.py", "json.py", "pytest.ini", "pytest.py", "setup.cfg"),
                *("sitecustomize.py", "tox.ini"),
            )
        ),
        tests=tuple(
            f"added {name}"
            for name in (
                *("_pytest/__init__.py", "conftest.py", "json.py", "pytest.ini", "pytest.py", "setup.cfg"),
                *("sitecustomize.py", "tox.ini"),
            )
        ),
        lies=True,
    ),
    "shadows what it tests": Scenario(
        "write_file('shop/__init__.py', 'def total(prices):\\n    return sum(prices)\\ndef names(text):\\n"
        '    return text.split(",")\\n\')\n',
        changes=("added shop/__init__.py",),
    ),
    "renames, changes modes and bytes, makes links, and writes outside": Scenario(
        HONEST + "import os\nos.rename('words.txt', 'more.txt')\nos.chmod('notes.txt', 0o755)\n"
        "os.symlink('notes.txt', 'link')\nos.symlink('/etc', 'out')\n"
        "open('new.bin', 'wb').write(bytes(range(256)))\nopen('old.bin', 'r+b').write(b'\\1\\0')\n"
        "open('latin', 'ab').write(b'\\xe8\\r\\n')\n"
        "for each in ('../escaped', '/tmp/coderoom-escaped', os.path.expanduser('~/escaped')):\n"
        "    try:\n        open(each, 'w').write('x')\n    except OSError:\n        pass\n",
        _with(
            {
                "words.txt": "one\n",
                "old.bin": bytes(range(256)) * 9,
                "latin": b"\xe9\r\n" * 9,
                ".gitattributes": "latin text=auto\n",
            }
        ),
        changes=(
            *("changed latin", "added link", "added more.txt", "added new.bin", "changed notes.txt"),
            *("changed old.bin", "added out", "changed shop.py", "deleted words.txt"),
        ),
    ),
    "puts a link in the place of a folder": Scenario(
        HONEST + "import os, shutil\nshutil.rmtree('data')\nos.symlink('other', 'data')\nos.remove('a')\n"
        "os.mkdir('a')\nopen('a/b', 'w').write('1')\n",
        _with({"data/x": "1\n", "data/y": "1\n", "other/x": "2\n", "a": "1\n"}),
        changes=("deleted a", "added a/b", "added data", "deleted data/x", "deleted data/y", "changed shop.py"),
    ),
    "changes .git": Scenario(
        HONEST + "import os\nfor each in ('.git/hooks/post-checkout', '.git/config', '.git/HEAD', '.git/index'):\n"
        "    open(each, 'w').write('x')\nopen('.git/hooks/pre-commit', 'w').write('#!/bin/sh\\n')\n",
        left_out=(".git/HEAD", ".git/config", ".git/hooks/post-checkout", ".git/hooks/pre-commit", ".git/index"),
    ),
    "commits": Scenario(
        HONEST + "import subprocess\nsubprocess.run(['git', '-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', "
        "'-qam', 'x'])\n",
        left_out=(".git/index",),
    ),
    "leaves processes": Scenario(
        HONEST + "import subprocess\nsubprocess.Popen(['sh', '-c', 'while sleep 0.1; do date > late.txt; done'])\n"
        "import time\ntime.sleep(0.5)\n",
        changes=("added late.txt", "changed shop.py"),
    ),
    "ends the process of the tests": Scenario(
        "open('shop.py', 'a').write('import os\\nos._exit(0)\\n')\n", succeeds=False, lies=True
    ),
    "exits": Scenario("open('shop.py', 'a').write('import sys\\nsys.exit(0)\\n')\n", succeeds=False, lies=True),
    "ends the process of unittest": Scenario(
        "open('shop.py', 'a').write('import os\\nos._exit(0)\\n')\n",
        _with({"test_shop.py": UNITTESTS}),
        succeeds=False,
        lies=True,
        test="python3 -m unittest",
    ),
    "unittest": Scenario(HONEST, _with({"test_shop.py": UNITTESTS}), test="python3 -m unittest"),
    "skips": Scenario(
        "open('shop.py', 'a').write('import pytest\\npytest.skip(allow_module_level=True)\\n')\n", succeeds=False
    ),
    "patches pytest": Scenario(f"open('shop.py', 'a').write({PATCHED_PYTEST!r})\n", succeeds=False, lies=True),
    # Repositories.
    "no git": Scenario(HONEST + "write_file('a.log', 'x')\n", plain, changes=("added a.log", "changed shop.py")),
    "uncommitted": Scenario(
        HONEST + _APPEND.format("new.py") + _APPEND.format("notes.txt"),
        _uncommitted,
        changes=("changed new.py", "changed notes.txt", "changed shop.py"),
    ),
    "unborn": Scenario(HONEST, _unborn),
    "ignored, excluded, and tracked although ignored": Scenario(
        HONEST
        + "for each in ('build/lib/x.so', '.venv/bin/python', 'a.log', 'kept.log', 'mine', 'node_modules/a.js'):\n"
        "    write_file(each, 'x')\n" + _APPEND.format("build/old") + _APPEND.format("kept/x.log") + "import os\n"
        "os.remove('old.log')\n",
        _with(
            {"kept/x.log": "1\n", "sub/.gitignore": ""},
            after=IGNORING | {"build/old": "1\n", "old.log": "1\n", ".venv/x": "1\n", ".git/info/exclude": "mine\n"},
        ),
        changes=("added kept.log", "changed kept/x.log", "changed shop.py"),
        left_out=(".venv/bin/python", "a.log", "build/lib/x.so", "build/old", "mine", "old.log"),
    ),
    "ignored without git": Scenario(
        HONEST
        + "write_file('build/x', 'x')\nwrite_file('.pytest_cache/x', 'x')\nwrite_file('__pycache__/x.pyc', 'x')\n",
        _ignoring_without_git,
        left_out=("build/x",),
    ),
    "submodule": Scenario(
        HONEST + _APPEND.format("lib/lib.py") + "write_file('lib/a.log', 'x')\nwrite_file('lib/new.py', 'x')\n",
        _submodule,
        changes=("changed lib/lib.py", "added lib/new.py", "changed shop.py"),
        left_out=("lib/a.log",),
    ),
    "worktree": Scenario(HONEST + "open('.git', 'w').write('gitdir: /tmp')\n", _worktree, left_out=(".git",)),
    "below": Scenario(
        HONEST + "write_file('out/x', 'x')\nimport os\nos.rename('notes.txt', 'words.txt')\n",
        _below,
        changes=("deleted notes.txt", "changed shop.py", "added words.txt"),
        left_out=("out/x",),
        below="packages/a b",
    ),
    "LFS, and what looks like a bare repository": Scenario(
        HONEST + "open('big.bin', 'a').write('x-more 1\\n')\n" + _APPEND.format("store/config"),
        _with(BARE | {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "big.bin": LFS}),
        changes=("changed big.bin", "changed shop.py", "changed store/config"),
    ),
    "CRLF": Scenario(HONEST, _with({"shop.py": CRLF})),
    "CRLF, text=auto": Scenario(
        HONEST + "write_file('new.txt', 'a\\r\\nb\\r\\n')\n",
        _with({".gitattributes": "* text=auto\n"}, after={"shop.py": CRLF}),
        changes=("added new.txt", "changed shop.py"),
    ),
    "CRLF, eol=crlf": Scenario(HONEST, _with({".gitattributes": "*.py text eol=crlf\n"}, after={"shop.py": CRLF})),
    "CRLF, autocrlf": Scenario(HONEST, _with({}, ("config", "core.autocrlf", "true"), after={"shop.py": CRLF})),
    "CRLF becomes LF": Scenario(
        "text = open('shop.py').read().replace('prices[1:]', 'prices')\nopen('shop.py', 'w').write(text)\n",
        _with({".gitattributes": "* text=auto\n"}, after={"shop.py": CRLF}),
    ),
    "names": Scenario(
        HONEST + "import os\nfor each in os.listdir('.'):\n"
        "    if not each.startswith('.') and not each.endswith(('.py', '__')) and each != 'notes.txt':\n"
        "        open(each, 'a').write('more\\n')\n        open(each + '2', 'w').write('new\\n')\n",
        _names,
        changes=(),
    ),
    "large, sparse and special": Scenario(
        HONEST + "with open('huge', 'wb') as file:\n    file.truncate(32 << 20)\nwrite_file('half.txt', 'x' * 2**20)\n"
        "import os\nos.mkfifo('pipe2')\nos.mkdir('folder')\nopen('empty', 'w').close()\n",
        _sparse,
        changes=("added empty", "added half.txt", "changed shop.py"),
        left_out=("huge", "pipe2", "folder"),
    ),
}
