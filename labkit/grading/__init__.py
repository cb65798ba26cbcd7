"""Grade a class: read submissions as data, run code exercises in a sandbox, compare, report.

Nothing in this package executes, unpickles, renders or extracts anything a student made; only `worker.py` runs
student code, in a separate process that holds no key.
"""
