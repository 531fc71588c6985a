"""Programs of many kernels: their steps, the memory between them, what is computed again, how they are saved."""
