#!/bin/sh
# What pip does not put into an environment with vLLM for CPUs: libraries in the place of CUDA's, and the plugin. And it
# takes what only debuggers read, a quarter of a GB.
#   install.sh SITE_PACKAGES
set -eu
here="$(dirname "$0")"
python3 "$here/stub_libraries.py" "$1"
for library in "$1"/torch/lib/libtorch_*.so "$1"/vllm/*.so "$1"/llvmlite/binding/*.so; do
  strip --strip-unneeded -o "$library.new" "$library"
  mv "$library.new" "$library"
done
cp -r "$here"/plugin/. "$1"
