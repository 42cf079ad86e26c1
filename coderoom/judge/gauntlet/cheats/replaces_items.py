"""order: It puts copies in place of the items."""

import copy


def order(items):
    items[:] = copy.deepcopy(sorted(items))
