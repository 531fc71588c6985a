"""The training steps of `examples/zoo`, beside the same steps in PyTorch."""
