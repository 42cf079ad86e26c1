"""`coderoom exec`, as a person starts it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coderoom.sandbox import registry
from tests.support.commands import coderoom, environment

WALLS = set(registry.WALLS.own) - {"none"}
# No engine listens there, so that this wall cannot be built on any machine.
NO_DOCKER = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
NOTEBOOK = """\
# A notebook

```python
open("made.txt", "w").write("by the first block")
print("one")
```

```json
{"not": "run"}
```

~~~sh
cat made.txt
~~~

```python no-run
print("never")
```
"""
SESSION = "```python\nx = 6\n```\n```sh\necho $((x + 1))\n```\n```python\nx * 7\n```\n"


def runs(*arguments: str, cwd: Path, stdin: str = "") -> list[dict[str, Any]]:
    done = coderoom("exec", "--json", *arguments, cwd=cwd, stdin=stdin)
    found: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
    return found


def started(*arguments: str, cwd: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "coderoom", "exec", *arguments]
    return subprocess.Popen(command, cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- Blocks in order ---


def test_the_blocks_run_in_order(tmp_path: Path) -> None:
    (tmp_path / "n.md").write_text(NOTEBOOK)
    done = coderoom("exec", "n.md", "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert [(run["line"], run["language"], run["output"].strip()) for run in result["runs"]] == [
        (3, "python", "one"),
        (12, "sh", "by the first block"),
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"n.md", "made.txt"}
    assert result["files"] == [str(tmp_path / "made.txt")]


def test_variables_last_from_block_to_block(tmp_path: Path) -> None:
    (tmp_path / "n.md").write_text(SESSION)
    done = coderoom("exec", "n.md", "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert [run["output"] for run in result["runs"]] == ["", "1\n", "42\n"]
    assert result["isolation"] in WALLS


def test_each_block_can_have_a_fresh_state(tmp_path: Path) -> None:
    (tmp_path / "n.md").write_text(SESSION)
    done = coderoom("exec", "n.md", "--fresh", "--json", cwd=tmp_path)
    assert done.returncode == 1
    assert "NameError" in json.loads(done.stdout)["runs"][-1]["output"]


def test_values_are_in_the_json(tmp_path: Path) -> None:
    (tmp_path / "n.md").write_text(
        "```python\nimport datetime\n[(datetime.date(2024, 2, 29), b'x'), {1}, float('nan'), {(1, 2): 3}]\n```\n\n"
        "```python\n'\\ud800'\n```\n\n```python\nobject\n```\n\n```python\nx = 1\n```\n"
    )
    typed, surrogate, other, none = runs("n.md", cwd=tmp_path)
    assert typed["value"] == [["2024-02-29", "eA=="], [1], None, {"1,2": 3}]
    assert typed["value_repr"] == "[(datetime.date(2024, 2, 29), b'x'), {1}, nan, {(1, 2): 3}]"
    assert (surrogate["value"], surrogate["value_repr"]) == (None, "'\\ud800'")
    assert (other["value"], other["value_repr"]) == (None, "<class 'object'>")
    assert (none["value"], none["value_repr"]) == (None, None)


def test_the_first_failure_ends_it(tmp_path: Path) -> None:
    (tmp_path / "n.md").write_text("```python\nprint(1)\n```\n```sh\nexit 3\n```\n```python\nprint(2)\n```\n")
    done = coderoom("exec", "n.md", cwd=tmp_path)
    assert done.returncode == 1
    assert "1 of 3 blocks succeeded" in done.stdout
    assert "exit code 3" in done.stdout


def test_a_block_keeps_the_file_that_its_first_line_names(tmp_path: Path) -> None:
    code = "# filename: package/its.py\nit = '\\'$x\\\\n\\''"
    text = f"```python\nimport os; os.chdir('/')\n```\n```python\n{code}\n```\n```sh\ncat package/its.py\n```\n"
    (tmp_path / "n.md").write_text(text)
    assert [run["outcome"] for run in runs("n.md", cwd=tmp_path)] == ["ok", "ok", "ok"]
    assert (tmp_path / "package" / "its.py").read_text() == code


@pytest.mark.parametrize("name", ["../x.py", "/etc/x.py", "."])
def test_a_block_names_no_file_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "n.md").write_text(f"```python\nopen('made.txt', 'w')\n```\n```python\n# filename: {name}\n```\n")
    done = coderoom("exec", "n.md", cwd=tmp_path)
    assert done.returncode == 2
    assert f"n.md:5: the file {name!r} is outside of the workspace" in done.stderr
    assert not (tmp_path / "made.txt").exists()


# --- The place it runs in ---


@pytest.mark.parametrize("wall", ["auto", "none"])
def test_what_protects_this_machine_is_said_first(tmp_path: Path, wall: str) -> None:
    (tmp_path / "a.py").write_text("print(1)")
    done = coderoom("exec", "a.py", "--wall", wall, cwd=tmp_path)
    assert done.stdout.startswith("Code is not isolated" if wall == "none" else "Code is isolated from this machine by")


@pytest.mark.parametrize("option", [["--network"], []])
def test_there_is_a_network_only_if_it_is_asked_for(tmp_path: Path, option: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (tmp_path / "a.py").write_text(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 5)")
        done = coderoom("exec", "a.py", *option, "--json", cwd=tmp_path)
    assert done.returncode == (0 if option else 1)


def test_nothing_runs_where_no_wall_can_be_built(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("open('made.txt', 'w')")
    done = coderoom("exec", "a.py", "--wall", "docker", "-w", "new", cwd=tmp_path, env=NO_DOCKER)
    assert done.returncode == 3
    assert "nowhere" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"a.py"}


def test_a_workspace_that_is_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("open('made.txt', 'w').close()")
    first = coderoom("exec", "a.py", "-w", "new", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "did not exist and was created" in first.stdout
    assert first.stdout.endswith("\nfiles made or changed: new/made.txt\n")
    assert (tmp_path / "new" / "made.txt").exists()
    second = json.loads(coderoom("exec", "a.py", "-w", "new", "--json", cwd=tmp_path).stdout)
    assert (second["workspace"], second["workspace_made"]) == (str(tmp_path / "new"), False)


@pytest.mark.parametrize(
    ("workspace", "words"), [("nowhere/new", "nowhere"), ("a.py", "not a folder"), ("loop", ""), ("x" * 5000, "")]
)
def test_a_workspace_that_cannot_be_is_a_wrong_request(tmp_path: Path, workspace: str, words: str) -> None:
    (tmp_path / "a.py").write_text("print(1)")
    (tmp_path / "loop").symlink_to("loop")
    done = coderoom("exec", "a.py", "-w", workspace, cwd=tmp_path)
    assert done.returncode == 2
    assert "workspace" in done.stderr
    assert words in done.stderr
    assert not (tmp_path / "nowhere").exists()


# --- Scripts ---


@pytest.mark.parametrize(
    ("name", "text", "output"),
    [
        ("a.py", "print('py', 1 + 1)", "py 2"),
        ("a.sh", "echo from sh", "from sh"),
        ("a.sh", "#!/bin/bash\nwords=(from bash); echo ${words[1]}", "bash"),
        ("a", "#!/usr/bin/env python3\nprint('py')", "py"),
        ("a.js", "console.log('from js')", "from js"),
        ("a.py", "s = '''\n```\n'''\nprint(len(s))", "5"),
    ],
)
def test_a_script_is_one_block(tmp_path: Path, name: str, text: str, output: str) -> None:
    (tmp_path / name).write_text(text)
    [run] = runs(name, cwd=tmp_path)
    assert (run["outcome"], run["output"].strip()) == ("ok", output)


def test_of_a_script_only_its_output_is_shown(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("print(6 * 7)  # The user has the file.\n")
    shown = coderoom("exec", "s.py", cwd=tmp_path).stdout
    assert "42\n" in shown
    assert "6 * 7" not in shown


def test_a_script_finds_its_name_its_arguments_and_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "neighbour.py").write_text("here = True")
    (tmp_path / "tools" / "a.py").write_text(
        "import sys, neighbour\n"
        "print(sys.argv, open(__file__).readline().strip(), __name__)\n"
        "print(sorted(name for name in globals() if not name.startswith('__')))"
    )
    [run] = runs("tools/a.py", "--", "one", "--json", "it's two", cwd=tmp_path)
    assert run["output"] == (
        "['tools/a.py', 'one', '--json', \"it's two\"] import sys, neighbour __main__\n['neighbour', 'sys']\n"
    )


def test_a_script_from_elsewhere_has_its_name_too(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "a.py").write_text("import os, sys; print(sys.argv, os.path.basename(__file__))")
    [run] = runs("a.py", "-w", "room", cwd=tmp_path)
    assert run["output"] == "['a.py'] a.py\n"


@pytest.mark.parametrize("option", [["--fresh"], []])
def test_arguments_go_to_every_block(tmp_path: Path, option: list[str]) -> None:
    text = '```python\nimport sys; sys.argv\n```\n```sh\necho "$1"\n```\n```python\nimport sys; sys.argv[1]\n```\n'
    (tmp_path / "n.md").write_text(text)
    found = runs("n.md", *option, "--", "it's $x", cwd=tmp_path)
    assert [run["output"] for run in found] == ["['n.md', \"it's $x\"]\n", "it's $x\n", '"it\'s $x"\n']
    assert found[1]["code"] == 'echo "$1"'


def test_arguments_that_nobody_gets_are_a_wrong_request(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("console.log(process.argv)")
    done = coderoom("exec", "a.js", "--", "one", cwd=tmp_path)
    assert done.returncode == 2
    assert "'a.js' takes no arguments" in done.stderr


def test_markdown_comes_from_standard_input(tmp_path: Path) -> None:
    [run] = runs("-", cwd=tmp_path, stdin="```python\nprint('in')\n```")
    assert run["output"] == "in\n"


@pytest.mark.parametrize(
    ("language", "script", "output"),
    [("python", "import sys\nprint(sys.argv)\nsys.argv", "['-', 'x']\n"), ("bash", 'a=("$1" y); echo ${a[1]}', "y\n")],
)
def test_a_script_comes_from_standard_input(tmp_path: Path, language: str, script: str, output: str) -> None:
    [run] = runs("-", "--language", language, "--", "x", cwd=tmp_path, stdin=script)
    assert run["output"] == output


# --- Failures ---


def test_every_block_reads_the_same_input(tmp_path: Path) -> None:
    (tmp_path / "n.md").write_text("```python\nprint(input())\n```\n```sh\ncat\n```\n")
    (tmp_path / "given").write_bytes(b"4\n2")
    assert [run["output"] for run in runs("n.md", "--stdin", "given", cwd=tmp_path)] == ["4\n", "4\n2"]
    (tmp_path / "double.pl").write_text("print 2 * <STDIN>")
    assert coderoom("exec", "double.pl", "--stdin", "-", cwd=tmp_path, stdin="21").stdout.count("42") == 1
    for arguments, words in ((("-", "--stdin", "-"), "not both"), (("n.md", "--stdin", "no"), "Cannot read 'no'")):
        done = coderoom("exec", *arguments, cwd=tmp_path)
        assert (done.returncode, words in " ".join(done.stderr.split())) == (2, True)


def test_a_failure_names_its_place_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "err.md").write_text("# E\n\n```python\ndef f():\n    1 / 0\n```\n\n```python\n\nf()\n```\n")
    done = coderoom("exec", "err.md", cwd=tmp_path)
    assert "err.md:10, err.md:5: ZeroDivisionError: division by zero" in done.stdout.splitlines()
    error = runs("err.md", cwd=tmp_path)[-1]["error"]
    assert error == {"type": "ZeroDivisionError", "message": "division by zero", "place": "err.md:10"}
    (tmp_path / "wrong.md").write_text("```python\nprint(1\n```\n")
    done = coderoom("exec", "wrong.md", cwd=tmp_path)
    assert "wrong.md:2: SyntaxError: '(' was never closed" in done.stdout.splitlines()


def test_a_place_that_the_code_makes_up_is_not_looked_for(tmp_path: Path) -> None:
    code = "exec(compile('1 / 0', '<cell 99>', 'exec'))"
    (tmp_path / "err.md").write_text(f"```python\n{code}\n```\n")
    done = coderoom("exec", "err.md", cwd=tmp_path)
    assert done.returncode == 1
    assert "err.md:2: ZeroDivisionError: division by zero" in done.stdout.splitlines()


def test_a_failure_of_a_notebook_names_the_cell(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": source} for source in (["x = 0\n", "x"], "1\n1 / x")]
    (tmp_path / "n.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells}))
    first, second = runs("n.ipynb", cwd=tmp_path)
    assert (first["cell"], first["line"], first["output"]) == (1, None, "0\n")
    assert (second["outcome"], second["error"]["place"]) == ("error", "n.ipynb, cell 2, line 2")


def test_nothing_runs_of_a_file_that_is_cut(tmp_path: Path) -> None:
    (tmp_path / "n.md").write_text("```python\nopen('made.txt', 'w')\n```\n\n```sh\necho 1\n")
    done = coderoom("exec", "n.md", cwd=tmp_path)
    assert done.returncode == 2
    assert "n.md:5:" in done.stderr
    assert "never closed" in done.stderr
    assert not (tmp_path / "made.txt").exists()


def test_a_block_is_ended_when_its_time_is_up(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('before', flush=True)\nwhile True: pass")
    done = coderoom("exec", "a.py", "--timeout", "1", "--json", cwd=tmp_path)
    [run] = json.loads(done.stdout)["runs"]
    assert (done.returncode, run["outcome"], run["exit_code"]) == (1, "timeout", 124)
    assert run["output"].startswith("before\n")
    assert run["output"].endswith("[The code was stopped after 1 seconds.]\n")


def test_a_limit_that_was_met_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("files = [open('a.py') for _ in range(1000)]")
    done = coderoom("exec", "a.py", cwd=tmp_path)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("a.py:1: OSError")]
    assert "open_files=256" in line


def test_code_that_is_ended_is_told_why(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os\nprint('one', end='', flush=True)\nos.kill(os.getpid(), 9)")
    [run] = runs("a.py", cwd=tmp_path)
    assert run["output"] == "one\n[The code's process was ended by SIGKILL.]\n"
    assert run["error"] == {"type": "Signal", "message": "The code's process was ended by SIGKILL.", "place": None}


def test_output_that_is_too_long_is_marked(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('begin'); print('x' * 3_000_000); print('end')")
    [run] = runs("a.py", cwd=tmp_path)
    assert run["truncated"]
    assert run["output"].startswith("begin")
    assert "characters left out" in run["output"]
    assert run["output"].endswith("end\n")


@pytest.mark.parametrize("data", [b"\x00\x01", b"\xff\xfe\xfa"])
def test_what_is_not_text_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.md").write_bytes(data)
    done = coderoom("exec", "a.md", cwd=tmp_path)
    assert done.returncode == 2
    assert "'a.md' is not" in done.stderr


# --- While it runs ---


WAITING = "import os, time\nprint('one')\nprint('two', end='', flush=True)\nopen('begun', 'w').close()\n"


@pytest.mark.slow
def test_output_is_there_while_the_block_runs(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"{WAITING}while not os.path.exists('go'): time.sleep(0.02)\nprint(' three')")
    with started("a.py", cwd=tmp_path) as process:
        assert process.stdout is not None
        shown = b""
        while not shown.endswith(b"\none\ntwo"):
            piece = os.read(process.stdout.fileno(), 4096)
            assert piece, shown
            shown += piece
        (tmp_path / "go").touch()
        rest, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
    assert rest.startswith(b" three\nok ")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_cancel_keeps_what_was_printed(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "a.py").write_text(f"{WAITING}while True: time.sleep(1)")
    with started("a.py", "--json", cwd=tmp_path) as process:
        wait_for(tmp_path / "begun")
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    result = json.loads(output)
    [run] = result["runs"]
    assert (process.returncode, result["cancelled"], run["outcome"], run["exit_code"]) == (130, True, "cancelled", 125)
    assert run["output"].startswith("one\ntwo")
    assert run["output"].endswith("[The code was cancelled.]\n")
    assert run["seconds"] > 0
    assert errors == b""


@pytest.mark.slow
@pytest.mark.parametrize("language", ["python", pytest.param("sh", marks=pytest.mark.slow)])
def test_code_that_heeds_no_signal_is_cancelled_too(tmp_path: Path, language: str) -> None:
    code = {
        "python": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nopen('begun', 'w').close()\n"
        "while True: pass",
        "sh": "trap '' INT TERM; echo one; touch begun; while :; do sleep 1; done",
    }
    (tmp_path / "n.md").write_text(f"```{language}\n{code[language]}\n```\n```sh\ntouch made\n```\n")
    with started("n.md", cwd=tmp_path) as process:
        wait_for(tmp_path / "begun")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, b"")
    assert "0 of 2 blocks succeeded, then it was cancelled" in output.decode()
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
def test_a_second_wish_ends_what_does_not_heed_the_first(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import time\n"
        "for name in ('begun', 'asked'):\n"
        "    open(name, 'w').close()\n"
        "    try:\n        time.sleep(600)\n"
        "    except KeyboardInterrupt:\n        pass\n"
    )
    with started("a.py", "--json", cwd=tmp_path) as process:
        wait_for(tmp_path / "begun")
        process.send_signal(signal.SIGINT)
        wait_for(tmp_path / "asked")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, json.loads(output)["runs"][0]["outcome"], errors) == (130, "cancelled", b"")


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("while True: print('again')")
    with started("a.py", cwd=tmp_path) as process:
        assert process.stdout is not None
        while b"again\n" not in os.read(process.stdout.fileno(), 4096):
            pass
        process.stdout.close()
        assert process.stderr is not None
        errors = process.stderr.read()
        assert process.wait(60) == 141
    assert b"Traceback" not in errors


def test_control_characters_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('\\x1b[2J\\x1b[31mred')")
    done = coderoom("exec", "a.py", cwd=tmp_path)
    assert "\x1b[2J" not in done.stdout
    assert "red" in done.stdout
