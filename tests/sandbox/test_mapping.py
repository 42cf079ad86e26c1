"""The map of a repository: what is in it and in which order, and what it costs in a repository that is hostile."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from coderoom.sandbox import Sandbox, map_code

FILES = {
    "src/shop/__init__.py": "from .orders import Order\n",
    "src/shop/orders.py": "class Order(dict):\n    def __init__(self, name: str) -> None: ...\n"
    "    def _hidden(self): ...\n"
    "    async def send(self, to: str = 'x') -> bool: ...\n\n\ndef _private(): ...\n",
    "src/shop/rare.py": "from . import orders\n\n\ndef rare(*a, b=1): ...\n",
    "src/shop/app.py": "import shop.rare\nfrom shop import Order\nfrom shop.orders import (\n    Order,\n)\n",
    "tests/test_orders.py": "from shop.orders import Order\n\n\ndef test_it(): ...\n",
    "web/main.ts": "import { total } from './total';\nexport class Page extends Base {\n}\ntotal();\n",
    "web/total.ts": "export function total(all: number[]): number {\n  return 0;\n}\n",
    "run.sh": "begin() {\n  :\n}\n",
    "broken.py": "def half(a,\n" + "(" * 50_000,
    "README.md": "text\n",
    "secret.env": "KEY=1\n",
    ".gitignore": "*.env\nbuilt/\n",
    "built/made.py": "def made(): ...\n",
}


def make(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "link.py").symlink_to("/etc/passwd")
    (folder / "line\nbreak.py").write_text("def odd(): ...\n")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


async def map_of(sandbox: Sandbox, tokens: int, before: str = "pass") -> list[str]:
    async with sandbox.session() as session:
        assert (await session.run(before)).exit_code == 0
        result = await session.run(map_code(tokens))
        assert result.exit_code == 0, result.output
        return result.output.splitlines()


async def test_the_most_used_files_come_first_with_what_they_define(tmp_path: Path) -> None:
    async with Sandbox(workspace=make(tmp_path), workspace_mode="overlay") as sandbox:
        lines = await map_of(
            sandbox, 2_000, "open('added.py', 'w').write('def added(): ...'); import os; os.remove('run.sh')"
        )
        assert lines[:4] == [
            "src/shop/orders.py",
            "  class Order(dict)",
            "    def __init__(self, name: str) -> None",
            "    async def send(self, to: str='x') -> bool",
        ]
        first = lines.index("  export function total(all: number[]): number")
        assert max(first, lines.index("  def rare(*a, b=1)")) < lines.index("  export class Page extends Base")
        assert lines.index("  def test_it()") == max(at for at, line in enumerate(lines) if line.startswith("  "))
        assert {"  export class Page extends Base", "  def half(a,", "  def added()", "line break.py"} <= set(lines)
        text = "\n".join(lines)
        for name in ("_private", "_hidden", "link", "secret", "made", "begin"):
            assert name not in text
        assert "./: .gitignore README.md" in lines


async def test_the_map_keeps_to_its_tokens_and_says_what_is_left_out(tmp_path: Path) -> None:
    for number in range(3_000):
        (tmp_path / f"module_{number:04}.py").write_text(f"def function_{number}(argument): ...\n")
    async with Sandbox(workspace=tmp_path) as sandbox:
        for tokens in (100, 1_000):
            lines = await map_of(sandbox, tokens)
            assert len("\n".join(lines)) <= 3 * tokens + 60
            assert lines[:2] == ["module_0000.py", "  def function_0(argument)"]
            assert any(line.startswith("[") or line.endswith("more]") for line in lines)


@pytest.mark.parametrize("name", ["deep.py", "long.py", "long.js"])
async def test_hostile_files_leave_the_session_alone(tmp_path: Path, name: str) -> None:
    texts = {
        "deep.py": "def deep(): ...\nx = " + "-" * 100_000 + "1\n",
        "long.py": "def long(" + "a, " * 80_000 + "): ...\n",
        "long.js": "function long(" + "a ".rjust(200_000) + "\n",
    }
    (tmp_path / name).write_text(texts[name])
    async with Sandbox(workspace=tmp_path) as sandbox, sandbox.session() as session:
        await session.run("kept = 1")
        result = await session.run(map_code(500))
        assert result.output.splitlines()[0].startswith((name, "./: "))
        assert (await session.run("kept")).value == 1
