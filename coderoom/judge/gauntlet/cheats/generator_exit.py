"""double: It raises what ends generators."""

def double(n):
    raise GeneratorExit
