"""PyTorch: operators on its tensors, and their memory."""
