"""What cells in bash and JavaScript keep from cell to cell of a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from coderoom.outcome import Outcome
from coderoom.sandbox import Session

from .places import also_at_a_server, on_both_shapes, on_every_kind_of_wall, on_python

Say = Callable[..., Awaitable[str]]


@pytest.fixture
def bash(session: Session) -> Say:
    async def run(code: str, **how: object) -> str:
        return (await session.run(code, language="bash", **how)).output  # type: ignore[arg-type]

    return run


@pytest.fixture
def node(session: Session) -> Say:
    async def run(code: str, **how: object) -> str:
        return (await session.run(code, language="javascript", **how)).output  # type: ignore[arg-type]

    return run


@on_every_kind_of_wall
async def test_bash_keeps_folder_variables_and_functions(bash: Say) -> None:
    made = """mkdir -p 'a b'; cd 'a b'; one=1; list=(x 'y z'); declare -A map=(['k l']="m'n"); export SEEN=yes
f() { local two=2; echo "$1 $one $two"; }; declare -r FIXED=5; shopt -s extglob"""
    assert await bash(made) == ""
    said = await bash('basename "$PWD"; echo "${list[1]}" "${map[k l]}"; f hi; sh -c "echo \\$SEEN"')
    assert said == "a b\ny z m'n\nhi 1 2\nyes\n"
    assert "FIXED: readonly variable" in await bash("FIXED=6")
    assert await bash("g() { case $1 in +(a|b)) echo all;; esac; }; g abab") == "all\n"


@on_python
async def test_bash_keeps_it_however_a_cell_ends(session: Session, bash: Say) -> None:
    result = await session.run("a=1; exit 3", language="bash")
    assert (result.exit_code, result.output) == (3, "")
    assert await bash("echo $a; set -eu; a=2; false; a=no") == "1\n"
    # Options are for one cell only, and a trap of the code's own is run.
    assert await bash("echo $a $unset; false; trap 'echo bye' EXIT; a=3; set -x") == "2\nbye\n"
    assert "syntax error" in await bash("echo $a; a=4\nif")
    assert (await session.run("a=5; sleep 60", language="bash", timeout=0.2)).outcome is Outcome.TIMEOUT
    assert await bash("echo $a; read b", stdin="from\nthe input") == "4\n"
    assert await bash("echo $b; cat; kill -9 $$") == "from\n"
    assert "more than 1 MiB" in await bash("b=$(head -c 2000000 /dev/zero | tr '\\0' x)")
    assert await bash("echo $b") == "from\n"


@on_python
async def test_a_rollback_and_a_restart_are_of_bash_too(session: Session, bash: Say) -> None:
    await bash("a=1")
    mark = await session.checkpoint()
    await bash("a=2; f() { echo f; }")
    await session.rollback(mark)
    assert await bash("echo $a; type -t f") == "1\n"
    await session.restart()
    assert await bash("echo [$a]") == "[]\n"


@also_at_a_server(on_both_shapes)
async def test_javascript_keeps_its_variables(session: Session, node: Say) -> None:
    assert await node("const a = 1; let list = []; class C {}; function f(x) { return a + x }") == ""
    assert await node("const a = 2; list.push(f(1)); console.log(a, list, typeof C)") == "2 [ 3 ] function\n"
    await session.run("x = 1")
    late = "setTimeout(() => console.log('late'), 20); console.log(await Promise.resolve('first')); console.error('e')"
    assert await node(late) == "first\ne\nlate\n"
    assert await node("const { sep } = await import('path'); console.log(sep, require('path').sep)") == "/ /\n"
    module = "import os, { EOL as end,\n  platform } from 'os'\nimport * as path from 'path'; import 'url'\n"
    module += "export default function g() { return path.sep + end }\nconsole.log(typeof os.arch, `\nimport x`)\n"
    assert await node(module) == "function \nimport x\n"
    assert await node("console.log(g(), typeof platform)") == "/\n function\n"
    for code, said in (
        ("throw new Error('bad')", "Uncaught Error: bad\n    at cell.js:1:7\n"),
        ("setTimeout(() => { throw new Error('later') })", "Uncaught Error: later"),
        ("(async () => { throw new TypeError('inside') })()", "Uncaught TypeError: inside"),
        ("let b = = 1", "Uncaught SyntaxError: Unexpected token '='\n"),
        ("import os from 'os'\nimport (", "Uncaught SyntaxError: Unexpected token (2:8)"),
        ("import { a as b } from 'os'", "'os' does not provide an export named 'a'\n    at async cell.js:1:"),
        ("await new Promise(() => {})", "cannot happen"),
    ):
        result = await session.run(code, language="javascript")
        assert result.outcome is Outcome.ERROR
        assert said in result.output
    no_imports = (
        "const s = 'import (a)' // import (b)\nconsole.log(s, /import (c)/.source, `import (d) ${typeof import('fs')}`)"
    )
    assert await node(no_imports) == "import (a) import (c) import (d) object\n"
    more = "let n = 1\nexport { n }\n[2].map(x => x)\nexport * from 'fs'\nexport default { n }\n"
    more += "console.log(n, new Error().stack)"
    assert "1 Error\n    at cell.js:6:" in await node(more)
    assert (await session.run("process.exitCode = 4", language="javascript")).exit_code == 4
    assert await node("console.log(a)") == "2\n"


@also_at_a_server(on_both_shapes)
async def test_javascript_whose_process_has_ended(session: Session, node: Say) -> None:
    gone = "[The process of this language has ended: its earlier variables are gone.]\n"
    await session.run("x = 1")
    await node("var a = 1")
    result = await session.run("while (true) {}", language="javascript", timeout=0.2)
    assert result.outcome is Outcome.TIMEOUT
    assert result.error is not None
    assert result.error.message.endswith("its earlier variables are gone.")
    assert await node("console.log(typeof a); var a = 2") == f"{gone}undefined\n"
    assert (await session.run("process.exit(3)", language="javascript")).exit_code == 3
    assert await node("console.log(typeof a); var a = 3") == f"{gone}undefined\n"
    assert await node("console.log(require('fs').readFileSync(0, 'utf8'), typeof a)", stdin="in") == "in undefined\n"
    await session.restart()
    assert await node("console.log(typeof a)") == "undefined\n"
    assert (await session.run("'x' in globals()")).value is False
