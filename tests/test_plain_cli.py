"""The command line where Typer and Rich are not installed: what `coderoom.cli.plain` does instead."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest

from coderoom._util.terminal import PlainConsole
from coderoom.cli import plain
from coderoom.runs import read_blocks, run_file

NumberOption = Annotated[
    float, plain.Option("--number", "-n", help="A number: 100 %.", min=0, max=9, envvar="A_NUMBER")
]

app = plain.Typer(help="An application.")
group = plain.Typer(help="A group.")
app.add_typer(group, name="group")
called: list[Any] = []


@app.command()
def work(
    context: plain.Context,
    file: Annotated[str, plain.Argument(help="A file.")],
    rest: Annotated[list[str] | None, plain.Argument(metavar="ARG", help="The rest.")] = None,
    folder: Annotated[Path, plain.Option(metavar="DIR", help="A folder.")] = Path(),
    number: NumberOption = 1.0,
    names: Annotated[list[str] | None, plain.Option("--name", help="A name.")] = None,
    network: Annotated[bool | None, plain.Option("--network/--no-network", help="The network.")] = None,
    quick: Annotated[bool, plain.Option("--quick", help="Quickly.")] = False,
) -> int:
    """Work on a file.

    Carefully.
    """
    called.append((context.obj, file, rest, folder, number, names, network, quick))
    return 5


@group.callback()
def before(context: plain.Context, team: Annotated[str | None, plain.Option(help="A team.")] = None) -> None:
    """Do something."""
    called.append((context.invoked_subcommand, team))


@group.command("end", hidden=True)
def end_it(late: Annotated[str, plain.Option(help="Needed.")]) -> None:
    """End."""
    called.append(late)


def run(monkeypatch: pytest.MonkeyPatch, words: str) -> tuple[Any, list[Any]]:
    monkeypatch.setattr(sys, "argv", ["coderoom", *words.split()])
    called.clear()
    return app(obj="caller"), list(called)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("work a", ("a", None, Path(), 1.0, None, None, False)),
        ("work --quick a b -n 2 c", ("a", ["b", "c"], Path(), 2.0, None, None, True)),
        ("work a --name x --name=y --no-network", ("a", None, Path(), 1.0, ["x", "y"], False, False)),
        ("work - --network --folder d", ("-", None, Path("d"), 1.0, None, True, False)),
        ("work a -- --quick -- -n", ("a", ["--quick", "--", "-n"], Path(), 1.0, None, None, False)),
        ("work -- -a", ("-a", None, Path(), 1.0, None, None, False)),
    ],
)
def test_options_and_arguments(monkeypatch: pytest.MonkeyPatch, words: str, values: tuple[Any, ...]) -> None:
    assert run(monkeypatch, words) == (5, [("caller", *values)])


def test_a_variable_sets_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_NUMBER", "3")
    assert run(monkeypatch, "work a")[1][0][4] == 3.0
    assert run(monkeypatch, "work a -n 4")[1][0][4] == 4.0


def test_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "group")[1] == [(None, None)]
    assert run(monkeypatch, "group --team t end --late l")[1] == [("end", "t"), "l"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("work", "Missing argument 'FILE'."),
        ("work a -n x", "argument --number/-n: invalid float value: 'x'"),
        ("work a -n 10", "10 is not in the range from 0 to 9"),
        ("work a --qui", "No such option: --qui"),
        ("nothing", "No such command 'nothing'."),
        ("group end", "required: --late"),
        ("group end --late x y", "Got unexpected extra argument (y)"),
    ],
)
def test_a_wrong_request_is_told(monkeypatch: pytest.MonkeyPatch, words: str, problem: str) -> None:
    with pytest.raises(plain.UsageProblem) as raised:
        run(monkeypatch, words)
    assert problem in raised.value.format_message()
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("", "commands:\n  group        A group.\n  work         Work on a file.\n"),
        ("--help", "An application."),
        ("work --help", "usage: coderoom work [OPTIONS] FILE ARG\n\nWork on a file. Carefully.\n"),
        ("work -h", "A number: 100 %."),
    ],
)
def test_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, shown: str) -> None:
    with contextlib.suppress(SystemExit):
        run(monkeypatch, words)
    assert shown in capsys.readouterr().out


async def test_a_file_is_shown_without_rich(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    file = tmp_path / "a.md"
    file.write_text(
        "```python\nprint('a', end='')\n```\n\n```python\n1 / 0\n```\n\n```text x\nno\n```\n```foo\nno\n```\n"
    )
    result = await run_file(read_blocks(str(file)), PlainConsole(), workspace=tmp_path, timeout=60, wall="none")
    assert not result.succeeded
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Code is not isolated")
    assert lines[1:6] == ["", "1 python, line 1 -------------", "print('a', end='')", "-" * 30, "a"]
    assert lines[6].startswith("ok · exit code 0")
    assert f"{file}:6: ZeroDivisionError: division by zero" in lines
    assert lines[-2:] == ["1 of 2 blocks succeeded", "not run: the block at line 12 ('foo')"]
    await run_file(read_blocks(str(file)), PlainConsole(quiet=True), workspace=tmp_path, timeout=60, wall="none")
    assert capsys.readouterr().out == ""
