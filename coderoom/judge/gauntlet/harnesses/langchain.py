"""langchain-experimental: Its tool returns what was printed, or the error."""

from langchain_experimental.utilities.python import PythonREPL


def passes(code, test, name, timeout):
    program = f"{code}\n{test}\ncheck({name})\nprint('passed')\n"
    found = PythonREPL(_globals={"__name__": "__main__"}, _locals=None).run(program, int(timeout))
    return found.strip().endswith("passed")
