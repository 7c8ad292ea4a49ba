"""Functions of matrices: inverse roots, eigenbases, orthogonalisation, products along a dimension. Never what
an optimizer stores, and never when it computes."""
