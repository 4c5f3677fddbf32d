"""The OpenAI endpoint: OpenAI's HTTP API in front of the pod's Triton, over gRPC.

It runs in a container of its own, with the libraries of the serving image: what is here is imported by the endpoint
alone, never in Triton's processes.
"""
