"""The semantics of the language, as a NumPy evaluator that is slow and plainly right."""

from tedsl.reference.interpreter import evaluate_stages, interpret
from tedsl.reference.overruns import found_overrun

__all__ = ["evaluate_stages", "found_overrun", "interpret"]
