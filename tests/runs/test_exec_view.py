from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from coderoom.runs import FileResult, read_blocks, run_file


async def shown(tmp_path: Path, code: str, *, terminal: bool) -> tuple[FileResult, str]:
    (tmp_path / "a.py").write_text(code)
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=terminal, force_interactive=terminal, legacy_windows=False)
    source = read_blocks(str(tmp_path / "a.py"))
    result = await run_file(source, console, workspace=tmp_path, timeout=60)
    return result, out.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


async def test_a_terminal_shows_each_line_for_good(tmp_path: Path) -> None:
    code = "for n in range(100): print('line', n)\nprint('last', end='')"
    result, text = await shown(tmp_path, code, terminal=True)
    assert result.succeeded
    lines = plain(text).splitlines()
    assert [line for line in lines if line.startswith("line ")] == [f"line {n}" for n in range(100)]
    region, _, after = text.partition("\x1b[?25h")
    assert re.search(r"running, \d+ s", region)
    assert "last\n" in plain(after)


async def test_a_terminal_is_left_as_it_was(tmp_path: Path) -> None:
    _, text = await shown(tmp_path, "print('\\x1b[2Jred\\r\\n1')\n1 / 0", terminal=True)
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert "\x1b[2J" not in text
    assert "a.py:2: ZeroDivisionError" in text


async def test_a_pipe_gets_what_was_printed_as_it_was(tmp_path: Path) -> None:
    code = "print('a\\tb\\r\\n' + 'x' * 500); print('[bold]end[/bold]', end='')\n6 * 7"
    result, text = await shown(tmp_path, code, terminal=False)
    assert "\n" + "a\tb\n" + "x" * 500 + "\n[bold]end[/bold]\nok " in text
    assert result.runs[0].output == "a\tb\r\n" + "x" * 500 + "\n[bold]end[/bold]"
    assert "\x1b" not in text


async def test_a_block_that_prints_nothing_says_so(tmp_path: Path) -> None:
    _, text = await shown(tmp_path, "x = 1", terminal=False)
    assert "\n(no output)\nok " in text
