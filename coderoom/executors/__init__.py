"""Running code for agents: in a sandbox, or as ordinary processes of the user, as AutoGen components."""

from coderoom.executors.checkpoints import Checkpoints
from coderoom.executors.execution import Execution
from coderoom.executors.launch import descendants, send
from coderoom.executors.leftovers import adopt_orphans, end_descendants, kill_until_gone
from coderoom.executors.local import LocalCodeExecutor
from coderoom.executors.output import bound_output, save_output
from coderoom.executors.runner import ExecutorRunner
from coderoom.executors.sandbox import SandboxCodeExecutor, SandboxCodeResult

__all__ = [
    "Checkpoints",
    "Execution",
    "ExecutorRunner",
    "LocalCodeExecutor",
    "SandboxCodeExecutor",
    "SandboxCodeResult",
    "adopt_orphans",
    "bound_output",
    "descendants",
    "end_descendants",
    "kill_until_gone",
    "save_output",
    "send",
]
