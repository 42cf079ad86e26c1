"""root: The result is a number that is derived from float."""

class Root(float):
    def __repr__(self):
        return "root %s" % float(self)


def root(a, b):
    return Root(-b / a)
