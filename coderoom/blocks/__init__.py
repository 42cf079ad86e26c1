"""Text of a model's reply → blocks of code.

The reply is read as CommonMark by markdown-it, with three rules of our own: fences that models write slightly wrong,
`<execute>` tags, and HTML that must not hide a fence. Nothing here decides what runs: every block is reported,
whatever its language, and the caller chooses.
"""

from __future__ import annotations

from coderoom.blocks.code_blocks import Block, extract_code_blocks, fence
from coderoom.blocks.fences import normalize_language

__all__ = ["Block", "extract_code_blocks", "fence", "normalize_language"]
