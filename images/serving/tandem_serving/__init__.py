"""What runs with Triton in a Tandem pod: the models' code, the pod's commands, and the Jobs that prepare models.

A request's way: `adapter` (Triton), then `bls` or `llmapi`, both over `requests`. `engine` judges whether an engine
works; `boot` starts the server, `prepare` checks models and builds engines before that. Each package imports those
below it alone (pyproject.toml, `importlinter`). Python 3.10 or newer: the profiles' images have that.
"""
