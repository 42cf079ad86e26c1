from __future__ import annotations

from pathlib import Path

from tests.configs.config_files import ENV, TEAM, write


def test_f8_file_is_not_changed_by_loading(tmp_path: Path) -> None:
    from coderoom.configs.build import build
    from coderoom.configs.kinds import TEAM as TEAM_KIND
    from coderoom.configs.loading import examine
    from coderoom.configs.reading import find_source

    checked = examine(find_source(write(tmp_path, TEAM)), TEAM_KIND, (), ENV)
    before = repr(checked.data)
    build(checked, object)
    assert repr(checked.data) == before
    assert "'OpenAIChatCompletionClient'" in before
