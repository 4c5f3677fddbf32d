#!/bin/sh
# Puts Triton's server out of the wheel nvidia-pytriton, installed in the environment VENV, into the stock image's
# layout: its built-in search paths are those of NVIDIA's image, /opt/tritonserver/{backends,caches}, and put there it
# needs no flag that the stock image does not need. PyTriton itself is left behind.
#   unpack_triton.sh VENV
set -eu
venv="$1"
version="$("$venv/bin/python3" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
site="$("$venv/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
wheel="$site/pytriton/tritonserver"
mv "$wheel/python_backend_stubs/$version/triton_python_backend_stub" "$wheel/backends/python/"
mkdir /opt/tritonserver
mv "$wheel/bin" "$wheel/backends" "$wheel/caches" /opt/tritonserver/
mv "$site/nvidia_pytriton.libs" /opt/tritonserver/lib
rm -rf "$site/pytriton" "$site"/nvidia_pytriton-* "$venv/bin/pytriton"
# The .pth file also sets up OpenBLAS at each start of Python: Triton's stub loads numpy before any model.
printf '/opt/reference\nimport reference_engine\n' > "$site/reference.pth"
