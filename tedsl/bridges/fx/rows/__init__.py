"""The operations of ATen on traced arrays: one table, a row for each."""
