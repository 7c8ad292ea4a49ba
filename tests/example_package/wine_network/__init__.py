"""An example of a package that brings a workload to shampoo-tuner."""
