"""Functions of whole arrays as LLVM's code, for kernels to call: what loops over indices cannot say."""
