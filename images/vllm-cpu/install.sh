#!/bin/sh
# What pip does not put into an environment with vLLM for CPUs: libraries in the place of NVIDIA's, and the plugin.
#   install.sh SITE_PACKAGES
set -eu
here="$(dirname "$0")"
python3 "$here/stub_libraries.py" "$1"
cp -r "$here"/plugin/. "$1"
