"""Running code for agents, as ordinary processes of the user who runs CodeRoom: with limits, and with no isolation."""

from coderoom.executors._execution import Execution
from coderoom.executors._leftovers import adopt_orphans, end_descendants
from coderoom.executors._local import LocalCodeExecutor
from coderoom.executors._output import bound_output, save_output
from coderoom.executors._runner import ExecutorRunner

__all__ = [
    "Execution",
    "ExecutorRunner",
    "LocalCodeExecutor",
    "adopt_orphans",
    "bound_output",
    "end_descendants",
    "save_output",
]
