"""The version of the package, which is the program's own."""

__version__ = "0.1.0"
