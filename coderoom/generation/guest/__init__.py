"""What runs in the same process as the code under test: the standard library only, of Python 3.8 and later.

Nothing in here is to be trusted with a verdict. The code under test can change all of it.
"""
