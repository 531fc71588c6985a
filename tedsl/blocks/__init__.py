"""Programs cut into blocks: which part of the inputs a part of an output needs, and the program of that part."""
