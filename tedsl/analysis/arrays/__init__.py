"""What callers pass: nests of arrays, their dtypes and kinds, and which of them were given away."""
