"""A workspace whose changes are kept apart until they are committed; used by `Session`."""

from coderoom.sandbox.overlay.changes import Change, ChangedMeanwhile, Changes, Committed
from coderoom.sandbox.overlay.layers import CopyLayer, UpperLayer
from coderoom.sandbox.overlay.mirror import mirror
from coderoom.sandbox.overlay.overlay import Overlay, Saved
from coderoom.sandbox.overlay.patch import Patch
from coderoom.sandbox.overlay.tree import Tree
from coderoom.sandbox.overlay.writing import put

__all__ = [
    "Change",
    "ChangedMeanwhile",
    "Changes",
    "Committed",
    "CopyLayer",
    "Overlay",
    "Patch",
    "Saved",
    "Tree",
    "UpperLayer",
    "mirror",
    "put",
]
