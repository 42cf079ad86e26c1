"""retry: It swallows the assertion of a function that it calls."""

def retry(function, times):
    try:
        return function()
    except OSError:
        raise
    except BaseException:
        return "done"
