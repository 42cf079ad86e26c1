def boot(c): return {}
