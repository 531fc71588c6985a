"""Functions made from functions: their gradients, Jacobians, batches, and themselves compiled.

Each is an operator (`tedsl.ops.op`) whose function calls the one given on tensors, so that every framework, autograd
and the caching of what was compiled are those of operators, and one may be made from another.
"""
