"""Cells of other languages: each with its toolchain, what a compiler says, what was built before, what is missing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coderoom.errors import MissingDependencyError
from coderoom.outcome import Outcome
from coderoom.sandbox import LANGUAGES, PROGRAMS, Limits, Sandbox

from .places import Place, on_both_shapes, on_every_kind_of_wall

READING = {
    "sh": "read a; echo got $a",
    "bash": "read a; echo got $a",
    "javascript": "console.log('got', require('fs').readFileSync(0, 'utf8').trim())",
    "typescript": "import * as fs from 'fs'\nconst a: string = fs.readFileSync(0, 'utf8')\nconsole.log('got', a)",
    "c": '#include <stdio.h>\nint main() { char a[9]; scanf("%8s", a); printf("got %s\\n", a); }',
    "cpp": '#include <iostream>\nint main() { std::string a; std::cin >> a; std::cout << "got " << a << "\\n"; }',
    "go": 'package main\nimport "fmt"\nfunc main() { var a string; fmt.Scan(&a); fmt.Println("got", a) }',
    "rust": 'use std::io::*;\nfn main() { let mut a = "".into(); stdin().read_line(&mut a).ok(); print!("got {a}") }',
    "java": "public class Main {\n    public static void main(String[] args) {\n"
    '        System.out.println("got " + new java.util.Scanner(System.in).next());\n    }\n}',
    "r": 'cat("got", readLines(file("stdin")), "\\n", sep=" ")',
    "ruby": 'puts "got #{gets}"',
    "php": '<?php echo "got ", fgets(STDIN);',
    "perl": "print 'got ', scalar <STDIN>",
    "lua": 'print("got " .. io.read())',
}
FAILING = {
    "typescript": ("let a: = 1", "main.ts(1,8): error"),
    "c": ("int main() {\n  return a; }", "main.c:2:10: error"),
    "cpp": ("int main() {\n  return a; }", "main.cpp:2:10: error"),
    "go": ("package main\nfunc main() { a }", "main.go:2:15: undefined: a"),
    "rust": ("fn main() { a }", "error[E0425]: cannot find value `a`"),
    "java": ("class Main { a }", "Main.java:1: error"),
}


@pytest.fixture(scope="module")
async def toolchains() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


@on_every_kind_of_wall
async def test_programs_are_compiled_behind_each_wall(place: Place) -> None:
    async with place.sandbox() as sandbox:
        if place.wall == "docker":  # The image has no compiler.
            with pytest.raises(MissingDependencyError, match=r"no gcc .*: apt-get install gcc\. .* an image with it"):
                await sandbox.run(READING["c"], language="c")
            return
        for _ in range(2):
            assert (await sandbox.run(READING["c"], language="c", stdin="it")).output == "got it\n"
        if place.wall == "landlock":  # Caches of compilers lie in the room, too.
            go = await sandbox.run(READING["go"], language="go", stdin="it")
            assert go.output == "got it\n"


@pytest.mark.slow
@pytest.mark.parametrize("language", READING)
async def test_each_language_reads_its_input(toolchains: Sandbox, language: str) -> None:
    result = await toolchains.run(READING[language], language=language, stdin="this\n")
    assert (result.outcome, result.output.strip()) == (Outcome.OK, "got this")


def test_all_but_what_debian_has_not_are_tested() -> None:
    assert {*READING, "python", "sql", "pwsh"} == set(LANGUAGES)
    assert {name for name, each in PROGRAMS.items() if each.build} == set(FAILING)


@pytest.mark.slow
@pytest.mark.parametrize("language", FAILING)
async def test_the_compilers_message_is_the_error(toolchains: Sandbox, language: str) -> None:
    code, said = FAILING[language]
    result = await toolchains.run(code, language=language)
    assert (result.outcome, result.stdout, result.code) == (Outcome.ERROR, "", code)
    assert result.error is not None
    assert result.error.type == "CompileError"
    assert said in result.error.message
    assert result.error.message in result.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "code", "said"),
    [
        ("java", "public final class A { public static void main(String[] a) { System.out.print(1); } }", "1"),
        ("java", "package a;\nclass A {}\nclass B{ public static void main(String[] a) { System.out.print(2); }}", "2"),
        ("php", 'echo 3;\necho __LINE__;', "32"),
        ("php", "4<?= 5 ?>", "45"),
    ],
)  # fmt: skip
async def test_what_answers_leave_out_is_found(toolchains: Sandbox, language: str, code: str, said: str) -> None:
    assert (await toolchains.run(code, language=language)).output == said


@on_both_shapes
async def test_a_shell_and_a_command_start_what_reserves_much(place: Place) -> None:
    node = "node -e 'new WebAssembly.Memory({ initial: 1, maximum: 65536 }); console.log(6)'"
    async with place.sandbox() as sandbox:
        for cell, language in ((node, "sh"), (node, "bash"), (f"!{node}", "python"), (f"%%bash\n{node}", "python")):
            assert (await sandbox.run(cell, language=language)).output == "6\n"
        assert "MemoryError" in (await sandbox.run("python3 -c 'bytearray(3 << 30)'", language="sh")).output


@pytest.mark.slow
async def test_compile_and_run_are_two_limits() -> None:
    slow = "#include <bits/stdc++.h>\nint main() {}"
    async with Sandbox(limits=Limits(compile_seconds=0.05)) as sandbox:
        result = await sandbox.run(slow, language="c++", timeout=60)
        assert result.outcome is Outcome.TIMEOUT
        assert "The compiler was stopped after 0.05 seconds" in result.output
    async with Sandbox(limits=Limits(wall_seconds=0.01)) as sandbox:
        result = await sandbox.run("int main() { for (;;); }", language="c", timeout=0.1)
        assert (result.outcome, result.output) == (Outcome.TIMEOUT, "")
        assert "after 0.1 seconds" in str(result.error)


@pytest.mark.slow
async def test_code_cannot_change_what_others_run_and_a_cancelled_build_leaves_the_session(tmp_path: Path) -> None:
    honest = '#include <stdio.h>\nint main(int n, char **a) { puts("honest"); remove(a[0]); return !fopen(a[0], "w"); }'
    including = f'#include "{tmp_path}/a.h"\n#include "/workspace/a.h"\n{honest}'
    (tmp_path / "a.h").write_text("")
    async with Sandbox(workspace=tmp_path) as sandbox, sandbox.session() as session:
        # The program itself cannot be written, so a second run is the same.
        for _ in range(2):
            result = await session.run(honest, language="c")
            assert result.stdout == "honest\n"
            assert result.exit_code != 0
        # What was built cannot depend on files that code may change.
        result = await session.run(including, language="c")
        assert result.error is not None
        assert result.error.type == "CompileError"
        await session.run("a = 1")
        building = asyncio.ensure_future(session.run("#include <bits/stdc++.h>\nint main() {}", language="cpp"))
        await asyncio.sleep(0.1)
        await session.cancel()
        assert (await building).outcome is Outcome.CANCELLED
        assert (await session.run("a")).value == 1


async def test_a_missing_program_is_named_with_its_package() -> None:
    async with Sandbox() as sandbox:
        with pytest.raises(MissingDependencyError, match=r"no pwsh, .* https://aka\.ms/powershell"):
            await sandbox.run("1", language="powershell")


async def test_sql_uses_the_database_of_the_workspace(tmp_path: Path) -> None:
    async with Sandbox(workspace=tmp_path) as sandbox:

        async def run(code: str) -> str:
            return (await sandbox.run(code, language="sql")).output

        assert await run("create table t (a, b);\ninsert into t values (1, 'x;\ny'), (2, null) -- end;") == ""
        assert await run("select *\nfrom t; select 'é', 1.5, x'00ff';") == "1|x;\ny\n2|\né|1.5|b'\\x00\\xff'\n"
        assert await run("select 1;\n\nselect\n* from u;") == "1\nError: line 3: no such table: u\n"
        assert sqlite3.connect(tmp_path / "database.db").execute("select count(*) from t").fetchone() == (2,)
        (tmp_path / "other.sqlite").touch()
        assert "There are several databases: database.db, other.sqlite." in await run("select 1")
        assert await run("-- database: other.sqlite\nselect count(*) from sqlite_master") == "0\n"
