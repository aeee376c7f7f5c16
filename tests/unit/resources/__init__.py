"""The models of the four kinds, and what is printed from them."""
