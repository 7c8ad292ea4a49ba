"""`Shampoo` on parameters that are spread over ranks."""
