"""What is no readable document at all: one clear problem with its place, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coderoom.configs import check_team, load_team
from coderoom.errors import ConfigError, RequestError
from tests.configs.config_files import ENV, REPLAY, TEAM, changed, found, line_of, write


def only(file: Path) -> tuple[int | None, str, str]:
    problems = found(file)
    assert len(problems) == 1, problems
    with pytest.raises(ConfigError) as caught:
        load_team(file, env=ENV)
    assert [problem.message for problem in caught.value.problems] == [problems[0][2]]
    return problems[0]


@pytest.mark.parametrize("content", [b"", b" \n\t\n", b"null\n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["team.yaml", "team.json"])
def test_empty_file(tmp_path: Path, content: bytes, name: str) -> None:
    assert only(write(tmp_path, content, name)) == (None, "", "the file is empty")


@pytest.mark.parametrize("content", [b"# only a comment\n", b"---\n", b"---\n...\n", b"~"])
def test_empty_yaml_file(tmp_path: Path, content: bytes) -> None:
    assert only(write(tmp_path, content)) == (None, "", "the file is empty")


def test_binary_file(tmp_path: Path) -> None:
    line, path, message = only(write(tmp_path, b"provider: x\nconfig: \x7fELF\x02\x00\x01"))
    assert (line, path) == (2, "")
    assert "binary" in message
    assert "byte 25" in message


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16(tmp_path: Path, encoding: str) -> None:
    assert "UTF-16; save it as UTF-8" in only(write(tmp_path, TEAM.encode(encoding)))[2]


def test_not_utf_8(tmp_path: Path) -> None:
    line, _, message = only(write(tmp_path, "provider: x\ndescription: caf\u00e9\n".encode("latin-1")))
    assert line == 2
    assert "0xe9" in message


def test_byte_order_mark_is_fine(tmp_path: Path) -> None:
    assert found(write(tmp_path, b"\xef\xbb\xbf" + TEAM.encode())) == []


def test_too_large(tmp_path: Path) -> None:
    assert only(write(tmp_path, b"#" * (4 * 1024 * 1024 + 1)))[2] == "the file is larger than 4 MiB"


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("provider: a: b\n", 1, "a ': ' where no value can begin"),
        ("provider: x\nconfig:\n\tname: y\n", 3, "a tab cannot indent"),
        ("provider: x\nconfig:\n  a: [1, 2\n", 3, "a '[' that is opened here"),
        ("provider: x\nconfig:\n  a: 'never closed\n", 3, "a quote that is opened here is never closed"),
        ("provider: x\n  config: {}\n", 2, "where no value can begin"),
        ("provider: x\nconfig:\n  a: 1\n b: 2\n", 4, "does not fit"),
        ("provider: @x\n", 1, "no value can begin with '@'"),
        ("provider: x\nnonsense\nconfig: {}\n", 2, "without its ':'"),
        ("provider: x\nlabel: \x07\n", 2, "U+0007"),
        ("provider: x\n---\nprovider: y\n", 2, "expected a single document"),
        ("provider: *nowhere\n", 1, "undefined alias 'nowhere'"),
        ("- provider: x\n", 1, "expected a mapping with the keys 'provider' and 'config'"),
        ("just a sentence\n", 1, "got 'just a sentence'"),
    ],
)
def test_bad_yaml(tmp_path: Path, text: str, line: int, part: str) -> None:
    at, _, message = only(write(tmp_path, text))
    assert part in message
    assert at == line


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ('{"provider": "x", }', 1, "property name"),
        ('{"provider": "x"\n"config": {}}', 2, "',' delimiter"),
        ('{"provider": NaN}', 1, "'NaN' is not a JSON value"),
        ('{"provider": ' + "1" * 5000 + "}", 1, "this is not JSON"),
        ("[1, 2]", 1, "got a list"),
    ],
)
def test_bad_json(tmp_path: Path, text: str, line: int, part: str) -> None:
    at, _, message = only(write(tmp_path, text, "team.json"))
    assert part in message
    assert at == line


@pytest.mark.parametrize(
    "text",
    [
        "provider: x\nconfig: &a [*a]\n",
        "provider: x\nconfig: &a\n  deeper:\n    still: *a\n",
        "provider: x\nconfig: &a {<<: *a}\n",
        "&a\nprovider: x\nconfig: *a\n",
    ],
)
def test_cycle_of_anchors(tmp_path: Path, text: str) -> None:
    line, _, message = only(write(tmp_path, text))
    assert line == line_of(text, "&a")
    assert message == "the alias '*a' stands inside its own anchor, so it would never end"


def test_alias_bomb(tmp_path: Path) -> None:
    levels = ["x-a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    levels += [f"x-a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    line, _, message = only(write(tmp_path, "\n".join(["provider: x", *levels])))
    assert message == "the file holds more than 20,000 keys and values, with its aliases written out"
    assert line is not None
    assert line < 8


@pytest.mark.parametrize("opened", ["[", "{a: ", "- ", "? ", '{"a":'])
def test_deep_nesting(tmp_path: Path, opened: str) -> None:
    text = "provider: x\nconfig:\n  " + opened * 1_000
    assert only(write(tmp_path, text))[2] == "the file nests deeper than 100 levels"


@pytest.mark.parametrize("count", [101, 100_000])
def test_deep_nesting_in_json(tmp_path: Path, count: int) -> None:
    message = only(write(tmp_path, "[" * count + "]" * count, "team.json"))[2]
    assert message == "the file nests deeper than 100 levels"


def test_bomb_of_merges(tmp_path: Path) -> None:
    levels = ["x-0: &a0 {" + ", ".join(f"k{n}: v" for n in range(100)) + "}"]
    levels += [f"x-{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(9))}}}" for n in range(1, 9)]
    assert (
        "keys and values, with its aliases written out" in only(write(tmp_path, "\n".join(["provider: x", *levels])))[2]
    )


def test_deep_nesting_by_aliases(tmp_path: Path) -> None:
    levels = ["x-0: &a0 []"] + [f"x-{n}: &a{n} [*a{n - 1}]" for n in range(1, 200)]
    assert "nests deeper than" in only(write(tmp_path, "\n".join(["provider: x", *levels])))[2]


@pytest.mark.parametrize("name", ["team.yaml", "team.json"])
def test_duplicate_keys(tmp_path: Path, name: str) -> None:
    text = '{"provider": "x.Y",\n"config": {"a": 1,\n"a": 2},\n"provider": "z.W"}'
    problems = found(write(tmp_path, text, name))
    assert (3, "config", "the key 'a' is here twice; the first is on line 2") in problems
    assert (4, "", "the key 'provider' is here twice; the first is on line 1") in problems


@pytest.mark.parametrize(
    ("tagged", "tag"),
    [
        ("!!python/object/apply:os.system ['echo x']", "!!python/object/apply:os.system"),
        ("!foo bar", "!foo"),
        ("!!binary aGk=", "!!binary"),
        ("!!set {a, b}", "!!set"),
        ("!<tag:example.com,2000:x> {}", "tag:example.com,2000:x"),
    ],
)
def test_tags(tmp_path: Path, tagged: str, tag: str) -> None:
    text = changed(TEAM, "description: Writes code.", f"description: {tagged}")
    problems = [one for one in found(write(tmp_path, text)) if "tag" in one[2]]
    place = "config.participants[0].config.description"
    assert problems == [
        (line_of(text, tagged), place, f"the tag {tag!r} is not allowed; a team file is plain data"),
    ]


def test_json_places(tmp_path: Path) -> None:
    text = '{\n\t"provider": "autogen_agentchat.teams.Swarm",\n\t"label": "a\\n\\"b\\" [{",\n\t"config": {"x": 1}\n}'
    problems = found(write(tmp_path, text, "team.json"))
    assert problems == [
        (4, "config", "the key 'participants' is missing"),
        (4, "config.x", "unknown key 'x'"),
    ]


@pytest.mark.parametrize("name", ["nowhere.yaml", "folder/nowhere.yaml", "/nowhere/at/all"])
def test_no_file(name: str) -> None:
    with pytest.raises(RequestError, match="there is no file"):
        check_team(name)


def test_directory_and_unreadable(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be read: it is a folder"):
        load_team(tmp_path)
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    with pytest.raises(RequestError, match="cannot be read"):
        load_team(tmp_path / "loop.yaml")
    with pytest.raises(RequestError, match="cannot be read"):
        load_team("nul\0.yaml")


def test_shell_substitution_style_path(tmp_path: Path) -> None:
    assert check_team(write(tmp_path, TEAM, "no-suffix"), env=ENV) == []


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_is_light() -> None:
    loaded = "import sys; print([name for name in sys.modules if name.startswith(('autogen', 'pydantic', 'ruamel'))])"
    assert run(f"import coderoom.configs; {loaded}") == "[]"


def test_public_names() -> None:
    import coderoom.configs

    assert all(getattr(coderoom.configs, name) for name in coderoom.configs.__all__)
    assert dir(coderoom.configs) == sorted(coderoom.configs.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = coderoom.configs.nothing


def test_replay_component_loads(tmp_path: Path) -> None:
    text = changed(
        TEAM,
        """\
          provider: OpenAIChatCompletionClient
          config:
            model: ${MODEL:-gpt-4o}
            api_key: ${OPENAI_API_KEY}
""",
        "".join(f"          {line}\n" for line in REPLAY.splitlines()),
    )
    assert found(write(tmp_path, text), env={}) == []
