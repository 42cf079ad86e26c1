"""Agents that are AutoGen's own, with AutoGen's own ways of running things."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.agents.helpers import python
from tests.studio.teams import agent, part, replay
from tests.support.commands import ROOT

__all__ = ["assistant", "calls_a_function", "calls_a_server", "calls_a_tool", "executes", "local", "own_server"]

Json = dict[str, Any]


def local(folder: Path) -> Json:
    provider = "autogen_ext.code_executors.local.LocalCommandLineCodeExecutor"
    return part("code_executor", provider, work_dir=str(folder), timeout=60)


def executes(code: str, executor: Json) -> Json:
    """AutoGen's agent that writes this code and runs it."""
    provider = "autogen_agentchat.agents.CodeExecutorAgent"
    return agent(provider, "coder", model_client=replay(python(code), "Done."), code_executor=executor)


def assistant(tool: str, arguments: Json, **config: Any) -> Json:
    """AutoGen's assistant that calls one tool."""
    call = {"content": [{"id": "1", "name": tool, "arguments": json.dumps(arguments)}]}
    return agent(
        "autogen_agentchat.agents.AssistantAgent",
        "assistant",
        description="It calls.",
        reflect_on_tool_use=False,
        tool_call_summary_format="{result}",
        model_client=replay(call, "Done.", function_calling=True),
        **config,
    )


def calls_a_tool(code: str, executor: Json) -> Json:
    """The assistant runs this code by AutoGen's tool."""
    tool = part("tool", "autogen_ext.tools.code_execution.PythonCodeExecutionTool", executor=executor)
    return assistant("CodeExecutor", {"code": code}, tools=[tool])


def calls_a_function(source: str) -> Json:
    """The assistant calls the function `work`, which runs in the process that serves."""
    config = {"source_code": source, "name": "work", "description": "It works.", "global_imports": []}
    tool = part("tool", "autogen_core.tools.FunctionTool", has_cancellation_support=False, **config)
    return assistant("work", {}, tools=[tool])


def calls_a_server(tool: str, arguments: Json, server: Json) -> Json:
    """The assistant calls a tool of an MCP server."""
    workbench = part("workbench", "autogen_ext.tools.mcp.McpWorkbench", server_params=server)
    return assistant(tool, arguments, workbench=[workbench])


def own_server(log: Path) -> Json:
    """An MCP server that is a process of whoever uses it."""
    return {
        "type": "StdioServerParams",
        "command": sys.executable,
        "args": ["-m", "tests.support.mcp_server", str(log)],
        "cwd": str(ROOT),
        "read_timeout_seconds": 60,
    }
