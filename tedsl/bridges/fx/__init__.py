"""Graphs of torch.fx: `te.from_fx`, and `torch.compile(backend="tedsl")`."""
