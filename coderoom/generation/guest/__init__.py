"""The test harness, which runs in the same process as the code under test: standard library of Python 3.8 only.

Nothing in here is to be trusted with a verdict. The code under test can change all of it.
"""
