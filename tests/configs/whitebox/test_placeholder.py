from __future__ import annotations

import pytest


def test_placeholder_outside_of_loading() -> None:
    from coderoom.configs.build import InjectedModel, InjectedModelConfig

    with pytest.raises(RuntimeError, match=r"outside of coderoom\.load_team"):
        InjectedModel._from_config(InjectedModelConfig())
