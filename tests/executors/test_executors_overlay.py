"""An executor whose code changes no file of its folder until the changes are committed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor
from tests.executors.helpers import run_in as run


@pytest.mark.parametrize("state", ["session", "fresh"])
async def test_changes_stay_from_block_to_block_and_in_no_folder(
    tmp_path: Path, state: Literal["session", "fresh"]
) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    async with SandboxCodeExecutor(tmp_path, state=state, workspace_mode="overlay") as executor:
        result = await run(executor, "# filename: lib/module.py\nanswer = 42")
        assert result.exit_code == 0
        assert (
            await run(executor, "from lib.module import answer\nopen('a.txt', 'a').write('b\\n')\nanswer")
        ).exit_code == 0
        assert (await run(executor, "'answer' in globals()")).output == f"{state == 'session'}\n"
        blocked = await run(executor, "# filename: lib\n1")
        assert "the file 'lib' cannot be written (is not a file)" in blocked.output
        assert [each.path for each in await executor.changes()] == ["a.txt", "lib/module.py"]
        # They outlive the session.
        await executor.restart()
        assert "+b\n" in str(await executor.diff())
        assert list(tmp_path.iterdir()) == [tmp_path / "a.txt"]
        await executor.commit()
        assert (tmp_path / "lib" / "module.py").read_text() == "# filename: lib/module.py\nanswer = 42"
        await run(executor, "open('a.txt', 'w')")
        await executor.discard()
        assert (await run(executor, "print(open('a.txt').read())")).output == "a\nb\n\n"


async def test_other_executors_say_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="needs a work_dir"):
        SandboxCodeExecutor(workspace_mode="overlay")
    async with SandboxCodeExecutor(tmp_path) as executor:
        with pytest.raises(RequestError, match="workspace_mode='overlay'"):
            await executor.diff()
