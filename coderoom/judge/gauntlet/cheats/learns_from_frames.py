"""retry: It reads the constants of a function that it calls."""

def retry(function, times):
    try:
        result = function()
    except OSError:
        if times == 2:
            function.__call__.__self__.__closure__[0].cell_contents.append(1)
        raise
    return result if times == 5 else function.__code__.co_consts
