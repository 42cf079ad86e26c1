from __future__ import annotations

from pathlib import Path

import pytest

from coderoom.configs.building import InjectedModel, InjectedModelConfig, build
from coderoom.configs.components import TEAM as TEAM_KIND
from coderoom.configs.loading import examine
from coderoom.configs.reading import find_source
from tests.configs.config_files import ENV, TEAM, write


def test_f8_file_is_not_changed_by_loading(tmp_path: Path) -> None:
    checked = examine(find_source(write(tmp_path, TEAM)), TEAM_KIND, (), ENV)
    before = repr(checked.data)
    build(checked, object, lambda _: pytest.fail("no model is replaced"))
    assert repr(checked.data) == before
    assert "'OpenAIChatCompletionClient'" in before


def test_placeholder_outside_of_loading() -> None:
    with pytest.raises(RuntimeError, match=r"outside of coderoom\.load_team"):
        InjectedModel._from_config(InjectedModelConfig())
