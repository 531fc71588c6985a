"""The semantics of the language, as a NumPy evaluator that is slow and plainly right."""

from tedsl.reference.interpreter import interpret

__all__ = ["interpret"]
