"""Index inversion: which points of a domain reach an element, as loops. See the README of `autodiff`."""
