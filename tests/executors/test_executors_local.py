"""The executor for ordinary processes, where it differs from the sandbox's."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import venv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeExecutor
from pydantic import ValidationError

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.executors import Checkpoints, LocalCodeExecutor, SandboxCodeExecutor
from coderoom.outcome import Outcome
from tests.executors.helpers import FOREVER, TREE, all_gone, processes, python, run_in, shell, until


async def test_blocks_run_in_order_until_one_fails_and_no_variables_last(tmp_path: Path) -> None:
    async with LocalCodeExecutor(tmp_path) as executor:
        result = await run_in(executor, python("x = 1\nprint(x)\nx"), shell("echo 2; exit 4"), python("print(3)"))
        assert (result.exit_code, result.output, result.execution.outcome) == (4, "1\n2\n", Outcome.ERROR)
        assert (await run_in(executor)).exit_code == 0
        result = await run_in(executor, python("print()"), python("x"))
        assert (result.exit_code, result.output.splitlines()[-1]) == (1, "NameError: name 'x' is not defined")
        assert 'File "<cell 1>", line 1' in result.output
        assert not isinstance(executor, Checkpoints)


async def test_a_config_loads_and_dumps_without_loss(tmp_path: Path) -> None:
    executor = LocalCodeExecutor(tmp_path / "later", 2.5, ["TOKEN"], "python3")
    dumped = executor.dump_component()
    assert dumped.provider == "coderoom.executors.LocalCodeExecutor"
    assert dumped.component_type == "code_executor"
    assert dumped.config == {
        "work_dir": str(tmp_path / "later"),
        "timeout": 2.5,
        "env": ["TOKEN"],
        "python": "python3",
    }
    loaded = CodeExecutor.load_component(dumped.model_dump())
    assert isinstance(loaded, LocalCodeExecutor)
    assert loaded.dump_component() == dumped
    assert LocalCodeExecutor.load_component(LocalCodeExecutor().dump_component()).timeout == 60
    assert executor.work_dir == tmp_path / "later"
    assert list(tmp_path.iterdir()) == []
    dumped.config["time_out"] = 3
    with pytest.raises(ValidationError, match="time_out"):
        LocalCodeExecutor.load_component(dumped)


async def test_arguments_of_autogens_executors_are_taken_or_refused_with_the_way_out(tmp_path: Path) -> None:
    class Env(venv.EnvBuilder):
        def post_setup(self, context: SimpleNamespace) -> None:
            self.context = context

    builder = Env(symlinks=True)
    builder.create(tmp_path / "env")
    taken: dict[str, Any] = {"functions": [], "functions_module": "mine", "cleanup_temp_files": True}
    async with LocalCodeExecutor(tmp_path, virtual_env_context=builder.context, **taken) as executor:
        result = await run_in(executor, python("import sys\nopen('made', 'w').close()\nprint(sys.prefix)"))
        named = await run_in(executor, python("# filename: src/a.py\nprint(1)"), python("print(2)"))
    assert result.output == f"{tmp_path / 'env'}\n"
    assert (result.code_file, result.output_files) == (None, [tmp_path / "made"])
    assert (named.code_file, named.output) == (str(tmp_path / "src" / "a.py"), "1\n2\n")
    for cls in (LocalCodeExecutor, SandboxCodeExecutor):
        for wrong in ({"functions": [print]}, {"cleanup_temp_files": False}, {"image": "x"}, {"auto_remove": False}):
            with pytest.raises(RequestError, match=f"has no argument {next(iter(wrong))}: "):
                cls(**wrong)
        cls(image="python:3-slim", auto_remove=True, stop_container=True, extra_volumes=None, delete_tmp_files=False)
        cls(kernel_name="python3", output_dir=None)
        with pytest.raises(RequestError, match=r"^timeout=0 is wrong: "):
            cls(timeout=0)
        with pytest.raises(RequestError, match="EnvBuilder makes, not 'env'"):
            cls(virtual_env_context="env")
        for name in ("python:3-slim", "registry.example:5000/team/image:1.2", "python3", "ir"):
            with pytest.raises(RequestError, match=f"folder work_dir, and '{name}' looks like an image or a kernel"):
                cls(name)
        cls("work/python3"), cls("./python3"), cls(Path("a:b"))
        with pytest.raises(RequestError, match="write timeout=60"):
            cls(60)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="'no_such'"):
            cls(no_such=1)


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"timeout": float("nan")}, {"env": "HOME"}, {"env": ["A=B"]}])
def test_a_wrong_argument_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LocalCodeExecutor(**wrong)  # type: ignore[arg-type]


class OwnLocalCodeExecutor(LocalCodeExecutor):
    """A user's subclass."""

    component_provider_override = f"{__name__}.OwnLocalCodeExecutor"


class UnnamedLocalCodeExecutor(LocalCodeExecutor):
    """A user's subclass that does not name its provider."""


@pytest.mark.parametrize("kind", [OwnLocalCodeExecutor, UnnamedLocalCodeExecutor])
def test_a_subclass_comes_back_as_itself(kind: type[LocalCodeExecutor]) -> None:
    assert type(CodeExecutor.load_component(kind(timeout=3).dump_component())) is kind


async def test_a_temporary_folder_lives_from_start_to_stop() -> None:
    executor = LocalCodeExecutor()
    await executor.restart()  # It was never started.
    async with executor:
        folder = executor.work_dir
        assert folder is not None
        await run_in(executor, shell("mkdir -p a/b; chmod 0 a/b; touch kept"))
        assert (folder / "kept").exists()
        await executor.restart()
        assert list(folder.iterdir()) == []
    assert executor.work_dir is None
    assert not folder.exists()


async def test_a_given_folder_is_kept_and_code_can_import_what_earlier_code_wrote(tmp_path: Path) -> None:
    async with LocalCodeExecutor(tmp_path) as executor:
        await run_in(executor, python("open('tool.py', 'w').write('value = 5')"))
        await executor.restart()
        assert (await run_in(executor, python("import tool; print(tool.value)"))).output == "5\n"
    assert (tmp_path / "tool.py").exists()


async def test_a_folder_that_cannot_be_made_is_our_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxUnavailable, match="file/below"):
        await LocalCodeExecutor(tmp_path / "file" / "below").start()


async def test_an_interpreter_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no-such-python"):
        await LocalCodeExecutor(tmp_path, python="no-such-python").start()


async def test_shells_find_the_chosen_interpreter(tmp_path: Path) -> None:
    venv.create(tmp_path / "other", symlinks=True)
    chosen = tmp_path / "other" / "bin" / "python"
    async with LocalCodeExecutor(tmp_path / "work", python=chosen) as executor:
        code = "import sys; print(sys.prefix)"
        for block in (python(code), shell(f'python -c "{code}"')):
            assert (await run_in(executor, block)).output == f"{tmp_path / 'other'}\n"


async def test_a_timeout_ends_the_output_with_a_line(tmp_path: Path) -> None:
    async with LocalCodeExecutor(tmp_path, timeout=0.5) as executor:
        result = await run_in(executor, python(FOREVER))
    assert result.exit_code == 124
    assert result.output.startswith("begun\n")
    assert result.output.endswith("[The code was stopped after 0.5 seconds.]\n")


async def test_l4_what_programs_need_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("HOME", "/srv")
    async with LocalCodeExecutor(tmp_path) as executor:
        result = await run_in(executor, shell('echo "$LC_TIME $HOME"; echo "$PATH"'))
    first, path = result.output.splitlines()
    assert first == "C /srv"
    assert path.endswith(os.environ["PATH"])


def test_l13_no_protection_is_promised_that_is_not_there() -> None:
    assert "without isolation" in (LocalCodeExecutor.__doc__ or "")


async def test_stop_ends_what_runs(tmp_path: Path) -> None:
    executor = LocalCodeExecutor(tmp_path)
    task = asyncio.create_task(executor.execute_code_blocks([python(TREE + FOREVER)], CancellationToken()))
    await until((tmp_path / "ready").exists)
    await executor.stop()
    result = await task
    assert (result.exit_code, result.execution.outcome) == (125, Outcome.CANCELLED)
    await all_gone(tmp_path)


HOST = """
import asyncio, sys
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from coderoom.executors import LocalCodeExecutor
code = open(sys.argv[2]).read()
executor = LocalCodeExecutor(sys.argv[1])
asyncio.run(executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken()))
"""


async def test_a_host_that_ends_takes_the_code_with_it(tmp_path: Path) -> None:
    work, temporary, code = tmp_path / "work", tmp_path / "temporary", tmp_path / "code.py"
    temporary.mkdir()
    code.write_text(TREE + "time.sleep(300)")
    command = [sys.executable, "-c", HOST, str(work), str(code)]
    host = subprocess.Popen(command, env=os.environ | {"TMPDIR": str(temporary)}, stderr=subprocess.DEVNULL)
    try:
        await until((work / "ready").exists, 30)
        assert len(processes(work)) > 4
        host.kill()
        await asyncio.to_thread(host.wait, 30)
    finally:
        host.kill()
        host.wait()
    await all_gone(work)
    await until(lambda: list(temporary.iterdir()) == [])
