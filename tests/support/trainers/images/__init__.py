"""Small images to train on, and trials of them."""
