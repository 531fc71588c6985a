"""What a compiled function is called with: blocks of buffers, addresses, arrays on a GPU."""
