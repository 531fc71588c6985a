"""One pipeline as one function in memory: its forms, its caches, the proofs that drop checks."""
