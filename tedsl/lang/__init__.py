"""The language: immutable scalar expressions, axes, tensors and reducers; everything else is built on it.

Importing any part also loads the modules that give expressions and tensors their operators and their text.
"""

from tedsl.lang import arrays, printing

__all__ = ["arrays", "printing"]
