"""Between Triton and the models' code: requests in, responses and metrics out, engine calls; no other package imports
Triton's Python module. Only the models' entry points (`models/*/1/model.py`) import it.
"""
