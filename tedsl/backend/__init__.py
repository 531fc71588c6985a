"""From the IR and a schedule to a function in memory: lowering to Halide, object code, the runtime, argument blocks."""
