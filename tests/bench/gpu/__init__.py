"""What the torch backend does on this machine's GPU, each figure next to its bound.

`python -m bench.gpu [steps|pair|profile ...] --out FOLDER` (tests and images/reference on PYTHONPATH; torch,
transformers). `steps`: time of a pass by rows, tokens and context, of models of random weights in the shapes
of Llama 3. `pair`: text and speculation of the trained pair in those shapes (`wide`).
"""
