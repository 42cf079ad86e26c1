"""The user's config file: its values stand in for variables that are not set."""

from __future__ import annotations

from pathlib import Path

import pytest

from coderoom.configs.user_config import apply_user_config, read_user_config, save_in_user_config, user_config_path
from coderoom.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file is."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path))
    path = user_config_path()
    assert path == tmp_path / "xdg/coderoom/config.yaml"
    return path


def test_variables_that_are_set_win_over_the_file(file: Path, tmp_path: Path) -> None:
    env = {"CODEROOM_WALL": "landlock", "CODEROOM_MODEL": " "}
    assert apply_user_config(env) == set()
    (tmp_path / "keys.env").write_text("CODEROOM_PRICES=of-the-env-file\nMY_KEY=secret\n")
    save_in_user_config(
        {
            "model": "ollama:qwen",
            "wall": "none",
            "workspace": "~/work",
            "prices": "prices.yaml",
            "env_file": "~/keys.env",
        }
    )
    changed = apply_user_config(env)
    assert changed == {"CODEROOM_MODEL", "CODEROOM_WORKSPACE", "CODEROOM_PRICES", "MY_KEY"}
    assert env == {
        "CODEROOM_MODEL": "ollama:qwen",
        "CODEROOM_WALL": "landlock",
        "CODEROOM_WORKSPACE": str(tmp_path / "work"),
        "CODEROOM_PRICES": "of-the-env-file",
        "MY_KEY": "secret",
    }


def test_what_is_saved_leaves_the_rest_as_it_was(file: Path) -> None:
    save_in_user_config({"model": "one"})
    file.write_text("# Mine.\nmodel: one # The small one.\nwall: none\n")
    assert save_in_user_config({"model": "two"}) == file
    assert file.read_text() == "# Mine.\nmodel: two # The small one.\nwall: none\n"
    assert read_user_config() == {"model": "two", "wall": "none"}


def test_all_its_mistakes_are_named_with_their_lines(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("modle: a\nwall: brick\nprices: 3\nworkspace: ' '\n")
    with pytest.raises(ConfigError) as caught:
        read_user_config()
    found = [(problem.line, problem.message) for problem in caught.value.problems]
    assert [line for line, _ in found] == [1, 2, 3, 4]
    assert "unknown key 'modle'; did you mean 'model'?" in found[0][1]
    assert "brick" in found[1][1]
    assert [said for _, said in found[2:]] == ["expected a text"] * 2
    file.write_text("- model")
    with pytest.raises(ConfigError, match="expected a mapping with model, wall"):
        read_user_config()
