"""The specification of the optimizers: textbook implementations in float64, which share nothing with the package."""
