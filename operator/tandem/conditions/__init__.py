"""What status shows: conditions, figures, and which change is worth a write.

Pure, made from the decision, the observed children and the report; `cluster` and the processes import it.
"""
