"""Running code for agents: in a sandbox, or as ordinary processes of the user, as AutoGen components."""

from coderoom.executors._checkpoints import Checkpoints
from coderoom.executors._docker_names import sweep_containers
from coderoom.executors._execution import Execution
from coderoom.executors._launch import descendants, send
from coderoom.executors._leftovers import adopt_orphans, end_descendants, kill_until_gone
from coderoom.executors._local import LocalCodeExecutor
from coderoom.executors._output import bound_output, save_output
from coderoom.executors._runner import ExecutorRunner
from coderoom.executors._sandbox import SandboxCodeExecutor, SandboxCodeResult

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
    "sweep_containers",
]
