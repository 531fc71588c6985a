"""Mutation at the edges: in-place Python code becomes pure tensors, and what shares memory is known exactly."""
