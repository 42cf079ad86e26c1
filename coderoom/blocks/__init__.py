"""Finds the blocks of code in a model's reply.

The reply is parsed as CommonMark by markdown-it, with additional rules for fences that models write slightly wrong, for
`<execute>` tags, and for HTML, which must not hide a fence. All blocks are returned, whatever their language; the
caller chooses what to run.
"""

from __future__ import annotations

from coderoom.blocks.code_blocks import Block, extract_code_blocks, fence, split_thoughts, without_thoughts
from coderoom.blocks.fences import normalize_language

__all__ = ["Block", "extract_code_blocks", "fence", "normalize_language", "split_thoughts", "without_thoughts"]
