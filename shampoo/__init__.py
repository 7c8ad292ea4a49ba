"""The Shampoo family of optimizers."""
