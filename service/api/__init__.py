"""The HTTP interface: routers, schemas and error responses. Loads neither torch nor ray, and never decides what a use
case decides.
"""
