"""Text of expressions and tensors."""

from tedsl.lang.expr import Expr

Expr._text = staticmethod(lambda e: type(e).__name__ + str(getattr(e, "name", getattr(e, "value", ""))))
