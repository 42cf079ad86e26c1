"""The files that a cell made: whose they are, and how many of them are reported."""

from __future__ import annotations

from pathlib import Path

from .places import Place, on_both_shapes, on_each_engine


@on_both_shapes
async def test_files_of_a_shell_cell_are_not_the_next_cells(place: Place, workspace: Path) -> None:
    for folder in (None, workspace):
        async with place.sandbox(workspace=folder) as sandbox, sandbox.session() as session:
            assert (await session.run("echo hi > f.txt", language="sh")).success
            assert (await session.run("1")).artifacts == ()
            (artifact,) = (await session.run("open('g.txt', 'w').write('hi')")).artifacts
            assert artifact.name == "g.txt"


@on_each_engine
async def test_what_is_left_out_is_counted(place: Place, workspace: Path) -> None:
    code = "for i in range({}):\n    with open(f'{{i:03}}.txt', 'w') as file: n = file.write('x' * {})"
    async with place.sandbox(workspace=workspace) as sandbox:
        result = await sandbox.run(code.format(150, 1))
        assert (len(result.artifacts), result.artifacts_left_out) == (100, 50), result
        result = await sandbox.run(code.format(100, 2))
        assert (len(result.artifacts), result.artifacts_left_out) == (100, 0)


@on_both_shapes
async def test_hidden_files_are_none(place: Place) -> None:
    async with place.sandbox() as sandbox:
        result = await sandbox.run("for name in ('.a', 'b'): open(name, 'w').close()")
        assert [artifact.name for artifact in result.artifacts] == ["b"]
        assert result.artifacts_left_out == 0
