"""What reads or rewrites the compilers' texts: LLVM's assembly, and names in any of them."""
