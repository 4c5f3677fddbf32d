"""`tandem operator run`: events become keys, keys are reconciled, comparisons prove that the watches live.

Only the command line imports it.
"""
