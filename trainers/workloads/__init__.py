"""The workloads that ship with shampoo-tuner, one module per family."""
