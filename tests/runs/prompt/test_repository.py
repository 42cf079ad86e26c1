"""A chat that works on a repository of git: real commits, with commands from a pipe and at a real terminal."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.commands import ROOT, chat_process, coderoom, environment, recording
from tests.support.screen import Screen

pytestmark = pytest.mark.slow

FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "use.py": "from calc import add\n\nprint(add(1, 2))\n",
    "notes.md": "one\n",
    ".gitignore": "*.log\n",
}
ADDS = 'print(edit_file("calc.py", "a - b", "a + b"))\nopen("run.log", "w").write("1")'
THREE = 'edit_file("notes.md", "one", "two"); write_file("new/a.py", "a = 1\\n"); write_file("b.py", "b = 1\\n")'
HOOK = "#!/bin/sh\necho ran >> hooked\ngrep -q refused calc.py && echo not so >&2 && exit 1\nexit 0\n"


def runs(*code: str) -> list[str]:
    """The replies of tasks, each of which runs some code."""
    return [reply for each in code for reply in (f"```python\n{each}\n```", "That is done.")]


class Repository:
    """A repository with one commit, and chats in it."""

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, path / "repository"
        self.folder.mkdir()
        for name, text in FILES.items():
            (self.folder / name).write_text(text)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Ann")
        self.git("config", "user.email", "ann@example.org")
        self.git("add", ".")
        self.git("commit", "-qm", "Begin")

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout.rstrip()

    def chat(self, *lines: str, replies: Sequence[str], more: Sequence[str] = (), team: Sequence[str] = ()) -> str:
        model = recording(self.path / "replies.json", replies)
        done = coderoom("chat", *team, "--model", model, *more, cwd=self.folder, stdin="\n".join(lines) + "\n")
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.stdout + done.stderr

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_the_chat_in_the_docs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "chat.md").read_text()
    shown = re.search(r"<!-- a repository -->\n+```text\n(.*?)```", page, re.DOTALL)
    assert shown is not None
    folder = shutil.copytree(ROOT / "examples" / "fix" / "words", tmp_path / "words")
    for line in ("init -q", "config user.name Ann", "config user.email a@example.org", "add .", "commit -qm Begin"):
        subprocess.run(["git", *line.split()], cwd=folder, check=True)
    lines = shown[1].splitlines()
    typed = [line[2:] for line in lines if line.startswith("> ")]
    answers = [line.rpartition("] ")[2] for line in lines if re.search(r"\[y/N.*\] \w", line)]
    assert answers == ["y"]
    typed.insert(typed.index("/apply each") + 1, answers[0])
    model = f"replay:{ROOT / 'examples' / 'repository.replay.yaml'}"
    done = coderoom("chat", "--model", model, cwd=folder, stdin="\n".join(typed) + "\n")
    output = done.stdout + done.stderr
    for line in lines:
        words = re.sub(r"\b[0-9a-f]{10} ", "", line.rpartition("] ")[0] if line.endswith("] y") else line)
        if not line.startswith("> ") and words not in ("", "…"):
            assert words in re.sub(r"\b[0-9a-f]{10} ", "", output), (words, output)
    log = subprocess.run(["git", "log", "--format=%s"], cwd=folder, capture_output=True, text=True, check=True)
    assert log.stdout.splitlines() == ["Count words with an apostrophe as one", "Begin"]


def test_changes_are_accepted_file_by_file(repository: Repository) -> None:
    kept = ["--journal", str(repository.path / "journal.sqlite3")]
    shown = repository.chat(
        "Change it.",
        "/apply nowhere",
        "/apply ../out",
        "/drop new",
        "/apply notes.md",
        "/apply each",
        "n",
        "Go on.",
        "/apply each",
        "perhaps",
        "quit",
        "/exit",
        replies=runs(THREE, "import os\nprint(os.path.exists('new/a.py'), open('notes.md').read())"),
        more=kept,
    )
    assert "  M notes.md  +1 -1\n" in shown
    assert "  A new/a.py  +1\n" in shown
    assert "Nothing has changed at nowhere." in shown
    assert "'../out' is not in" in shown
    assert "The person has taken back what was changed in: new" in shown
    assert "False two" in shown
    assert "Please answer y, n, drop or quit." in shown
    assert "Still kept apart (1 changed file): b.py\n" in shown
    assert "not written into" in shown
    assert "1 changed file not written. A chat that goes on has them again" in shown
    assert repository.git("status", "--short") == " M notes.md"
    assert not (repository.folder / "b.py").exists()
    shown = repository.chat(
        *("Change it.", "/drop deep/er/a.py", "!ls", "/exit"), replies=runs("write_file('deep/er/a.py', '')")
    )
    assert "As in the folder: deep/er/a.py" in shown
    assert "\ndeep\n" not in shown
    again = coderoom("chat", "--continue", *kept, cwd=repository.folder, stdin="/exit\n").stdout
    assert "> Go on.\n" in again
    assert "The person has taken back" not in again
    assert "1 changed file of this chat is kept apart" in again
    kept_all = coderoom("chat", "--continue", *kept, cwd=repository.folder, stdin="/apply\n/exit\n").stdout
    assert "1 changed file of this chat is kept apart" in kept_all
    assert "kept apart" not in coderoom("chat", "--continue", *kept, cwd=repository.folder, stdin="/exit\n").stdout


def test_changes_are_accepted_hunk_by_hunk(repository: Repository) -> None:
    lines = [f"line {number}\r" if number == 3 else f"line {number}" for number in range(60)]
    (repository.folder / "long.txt").write_bytes("\n".join(lines).encode())
    (repository.folder / "long.txt").chmod(0o755)
    changed = {2: "two", 20: "+++ twenty\n@@ -1 +1 @@", 40: "", 59: "the end"}
    code = "lines = open('long.txt', newline='').read().split('\\n')\n"
    code += f"for number, text in {changed!r}.items(): lines[number] = text\n"
    code += "open('long.txt', 'w', newline='').write('\\n'.join(lines)); write_file('b.py', 'b = 1\\n')"
    shown = repository.chat(
        *("Change it.", "/apply each", "n", "hunks", "y", "n", "y", "d", "/diff", "/apply long.txt", "/exit", "n"),
        replies=runs(code),
    )
    assert "Write long.txt (2 of 2)? y, n, hunks, drop, or quit [y/N/hunks/drop/quit]" in shown
    assert "Write b.py (1 of 2)? y, n, drop, or quit [y/N/drop/quit]" in shown
    assert "Write this hunk (4 of 4)? y, n, a (all of the rest), d (none of the rest), or q (end) [y/N/a/d/q]" in shown
    after = shown[shown.index("Written into") :]
    kept = [f"-line {number}\n" in after for number in changed]
    assert kept == [False, True, False, True], after
    for number, text in changed.items():
        lines[number] = text
    assert (repository.folder / "long.txt").read_bytes() == "\n".join(lines).encode()
    assert (repository.folder / "long.txt").stat().st_mode & 0o777 == 0o755
    shown = repository.chat(
        *("Change it.", "/apply each", "h", "n", "a", "/exit", "n"),
        replies=runs("edit_file('long.txt', 'line 1\\n', ''); edit_file('long.txt', 'line 55', 'x')"),
    )
    assert b"line 1\n" in (repository.folder / "long.txt").read_bytes()
    assert b"line 55" not in (repository.folder / "long.txt").read_bytes()


@pytest.mark.parametrize("killed", [True, False])
def test_a_chat_that_goes_on_has_what_the_person_had_kept(repository: Repository, killed: bool) -> None:
    kept = ["--journal", str(repository.path / "journal.sqlite3")]
    code = (
        THREE
        + """
import os
edit_file("use.py", "print(add(1, 2))", "print(2)")
open("random.bin", "wb").write(b"\\0" + os.urandom(8)); os.chmod("random.bin", 0o755)
os.symlink("b.py", "link"); os.remove("calc.py"); open("run.log", "w").write("1")
"""
    )
    model = recording(
        repository.path / "replies.json", [*runs(code, "x = 5\nopen('b.py', 'a').write('c = 2\\n')"), "5"]
    )
    lines = [
        "Change it.",
        "/drop new",
        "/apply notes.md",
        "/apply each",
        *"nnnn",
        "drop",
        "Go on.",
        "/diff",
        "!echo all",
    ]
    with chat_process(
        *("--model", model, *kept),
        cwd=repository.folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        before = "".join(iter(process.stdout.readline, "all\n"))
        if killed:
            process.kill()
        else:
            process.communicate("/exit\nn\n")
    again = coderoom("chat", "--continue", *kept, cwd=repository.folder, stdin="/diff\n/exit\nn\n").stdout
    diff = before[before.rindex("diff --git a/calc.py") :]
    assert re.findall(r"^diff --git a/(\S+)", diff, re.M) == ["calc.py", "b.py", "link", "random.bin"]
    assert re.findall(r"^index .*", before, re.M) == []
    assert "4 changed files of this chat are kept apart" in again
    assert diff in again
    assert repository.git("status", "--short") == " M notes.md"
    assert repository.read("notes.md") == "two\n"


def test_a_commit_has_what_the_chat_has_changed_and_nothing_else(repository: Repository) -> None:
    (repository.folder / "notes.md").write_text("one\nmine\n")
    (repository.folder / "use.py").write_text("# mine\n")
    repository.git("add", "use.py")
    (repository.folder / ".git" / "hooks" / "pre-commit").write_text(HOOK)
    (repository.folder / ".git" / "hooks" / "pre-commit").chmod(0o755)
    shown = repository.chat(
        "Add.",
        "/commit",
        "Change it.",
        "/commit Three files",
        "n",
        "/apply",
        "/exit",
        replies=[*runs(ADDS), "```\nAdd instead of subtracting\n\nIt did not.\n```", *runs(THREE)],
    )
    assert "1 that git ignores" in shown
    assert "changes of your own, too: notes.md" in shown
    assert repository.git("log", "--format=%an: %B", "--stat=80", "-2", "--name-only").split("\n") == [
        "Ann: Three files",
        "",
        "",
        "b.py",
        "new/a.py",
        "Ann: Add instead of subtracting",
        "",
        "It did not.",
        "",
        "",
        "calc.py",
    ]
    assert repository.git("status", "--short").splitlines() == [" M notes.md", "M  use.py", "?? hooked"]
    assert repository.read("notes.md") == "two\nmine\n"
    assert repository.read("hooked") == "ran\nran\n"


def test_a_hook_that_refuses_leaves_the_index_as_it_was(repository: Repository) -> None:
    (repository.folder / ".git" / "hooks" / "pre-commit").write_text(HOOK)
    (repository.folder / ".git" / "hooks" / "pre-commit").chmod(0o755)
    refused = 'edit_file("calc.py", "a - b", "a + b  # refused")\nwrite_file("new.py", "")'
    shown = repository.chat("Add.", "/commit It", "/exit", replies=runs(refused))
    assert "git or a hook has refused it: not so" in shown
    assert repository.git("log", "--format=%s") == "Begin"
    assert repository.git("status", "--short").splitlines() == [" M calc.py", "?? hooked", "?? new.py"]


def test_code_cannot_have_a_hook_run_by_a_commit(repository: Repository) -> None:
    hook = "import os, stat\nfor name in ('pre-commit', 'post-commit'):\n    path = f'.git/hooks/{name}'\n"
    hook += "    open(path, 'w').write('#!/bin/sh\\ntouch hooked\\n'); os.chmod(path, 0o755)\n"
    hook += "open('.git/config', 'a').write('[core]\\n\\thooksPath = hooks\\n')\n"
    shown = repository.chat("Add.", "/commit It", "/exit", replies=runs(hook + ADDS))
    assert "[not written:" in shown
    assert repository.git("log", "--format=%s").splitlines() == ["It", "Begin"]
    assert not (repository.folder / "hooked").exists()
    assert not (repository.folder / ".git" / "hooks" / "pre-commit").exists()
    shown = repository.chat("/team code-act", "/team repository", "Add.", "/commit It", "/exit", replies=runs(hook))
    assert "since a team of it had no overlay" in " ".join(shown.split())
    shown = repository.chat("Add.", "/commit It", "/exit", replies=runs(hook), more=["--wall", "none"])
    assert "no wall around its code" in " ".join(shown.split())
    direct = ["--workspace", ".", "--workspace-mode", "direct"]
    shown = repository.chat("Add.", "/commit It", "/exit", replies=runs(hook), team=["code-act"], more=direct)
    assert "Nothing is kept apart" in shown
    assert not (repository.folder / "hooked").exists()


def test_a_commit_is_undone_with_its_files_unless_it_is_somebody_elses(repository: Repository) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(repository.path / "bare")], check=True)
    repository.git("remote", "add", "origin", str(repository.path / "bare"))
    shown = repository.chat(
        "Change it.",
        "/commit Three",
        "/undo",
        "Look.",
        "/exit",
        replies=runs(THREE, "import os\nprint(os.path.exists('b.py'), open('notes.md').read())"),
    )
    assert "Undone, with its changes of " in shown
    assert "False one" in shown
    assert repository.git("log", "--format=%s") == "Begin"
    assert repository.git("status", "--short") == ""
    (repository.folder / ".git" / "hooks" / "post-commit").write_text("#!/bin/sh\ngit push -q origin main\n")
    (repository.folder / ".git" / "hooks" / "post-commit").chmod(0o755)
    shown = repository.chat("Change it.", "/commit Three", "/undo", "/exit", replies=runs(THREE))
    assert re.search(r"was pushed: `git revert \w+`", shown)
    assert repository.git("log", "--format=%s").splitlines() == ["Three", "Begin"]


def test_without_a_repository_or_an_overlay_a_commit_says_what_is_missing(tmp_path: Path) -> None:
    done = coderoom("chat", cwd=tmp_path)
    assert done.returncode == 2
    assert "takes the team `repository`" in done.stderr
    model = recording(tmp_path / "replies.json", runs("write_file('a', '')"))
    options = ["--model", model, "--workspace", "."]
    done = coderoom("chat", "repository", *options, cwd=tmp_path, stdin="Go.\n/commit\n/exit\nn\n")
    assert "is in no repository of git" in " ".join(done.stdout.split())  # Long lines are folded.
    done = coderoom("chat", "repository", *options, "--commit", cwd=tmp_path, stdin="Go.\n")
    assert done.returncode == 2
    assert "is in no repository of git" in done.stderr


@pytest.fixture
def screen(repository: Repository) -> Iterator[Screen]:
    model = recording(repository.path / "replies.json", [*runs(ADDS), "Add up", *runs("print(open('calc.py').read())")])
    options = ["--model", model, "--workspace", str(repository.folder), "--commit"]
    opened = Screen(repository.path, [], team="repository", options=options)
    yield opened
    opened.end()


def test_each_task_is_committed_at_the_terminal_and_the_editor_works_beside_it(
    screen: Screen, repository: Repository
) -> None:
    screen.type("Add.", "Enter")
    screen.until("Write and commit this?")
    assert repository.git("log", "--format=%s") == "Begin"
    screen.type("y", "Enter")
    screen.until("Committed 1 file")
    assert repository.git("log", "--format=%s").splitlines() == ["Add up", "Begin"]
    (repository.folder / "calc.py").write_text("# by hand\n")
    screen.type("What is in it?", "Enter")
    screen.until("│ # by hand")
    screen.type("/exit", "Enter")
    screen.until("ended with 0")


def test_what_a_person_took_back_or_wrote_stays_so_when_earlier_code_runs_again(repository: Repository) -> None:
    waits = "import time\nprint('be' + 'gun', flush=True)\ntime.sleep(60)"
    replies = [*runs(THREE), f"```python\n{waits}\n```", *runs("print('af' + 'terwards')")]
    options = ["--model", recording(repository.path / "replies.json", replies), "--workspace", str(repository.folder)]
    screen = Screen(repository.path, [], team="repository", options=options)
    try:
        screen.type("Add three.", "Enter")
        screen.until("3 changed files")
        screen.type("/apply each", "Enter")
        for number, answer in enumerate(("y", "y", "drop"), start=1):
            screen.until(f"({number} of 3)?")
            screen.type(answer, "Enter")
        screen.until_line("")
        assert " · turn " not in screen.text  # Nothing works any more.
        screen.type("/undo", "Enter")
        screen.until("are not undone")
        screen.type("Wait.", "Enter")
        screen.until("begun")
        screen.type("C-c")
        screen.until("cancelled · 1 run of code")
        screen.type("And now?", "Enter")
        screen.until("afterwards")
        screen.type("/apply", "Enter")
        screen.until("Nothing is kept apart.")
    finally:
        screen.end()
