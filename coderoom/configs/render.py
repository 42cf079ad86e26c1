"""Plain data as the text of a file."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

from coderoom.configs.yaml import core_value

__all__ = ["to_json", "to_yaml"]

_LONG = 100
_NO_BLOCK = re.compile(
    r"\A\s|[^\S \n]|[^\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]| +$", re.M
)
"""Texts that would not come back the same from a literal block, or that nobody could read in one."""


def to_json(data: Any) -> str:
    """Write JSON, indented."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_yaml(data: Any) -> str:
    """Write YAML, in which long texts are literal blocks."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 1_000_000  # a folded text is hard to edit
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.representer.ignore_aliases = lambda *_: True
    stream = io.StringIO()
    yaml.dump(_styled(data), stream)
    return stream.getvalue()


def _styled(value: Any) -> Any:
    if isinstance(value, dict):
        return {_styled_text(key, is_key=True): _styled(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_styled(inner) for inner in value]
    return _styled_text(value) if isinstance(value, str) else value


def _styled_text(text: str, *, is_key: bool = False) -> str:
    if not is_key and ("\n" in text or len(text) > _LONG) and not _NO_BLOCK.search(text):
        block: str = LiteralScalarString(text)
        return block
    if not text.isprintable() or (text and core_value(text) is not text):
        quoted: str = DoubleQuotedScalarString(text)
        return quoted
    return text
