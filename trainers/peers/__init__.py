"""Optimizers of others that a trial may train with beside torch's AdamW and SGD, in the shape that trials need: one
object with one state. Our own never live here.
"""
