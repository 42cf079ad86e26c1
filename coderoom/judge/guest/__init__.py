"""The test harness, which runs in the same process as the code under test: standard library of Python 3.8 only.

Its answers are untrusted, since the code under test can change all of it. Verdicts are computed on the host.
"""
