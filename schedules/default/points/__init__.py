"""The points of scatters: of several as those of one, and in blocks with a table each."""
