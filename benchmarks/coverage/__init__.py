"""The coverage study; run `study.py` here. Not the package `coverage` that measures tests.

A script in the folder above has that folder first on its path, and libraries that ask for the real package, such as
numba, would find this one. They take an ImportError for "not installed".
"""

if __name__ == "coverage":
    raise ImportError("benchmarks/coverage is a study, not the package of that name")
