#!/usr/bin/env python3
"""Sends each fault to the API server as a dry run; it must be refused, or warned of.

usage: faults.py KUBECTL NAMESPACE MANIFESTS_DIRECTORY FAULTS.yaml   prints one line a fault, "ok" or "FAIL"
"""
import pathlib
import re
import subprocess
import sys

import yaml

WARNING = re.compile(r"^(W\d|Warning)|would violate PodSecurity", re.M)


def change(document, at, value):
    keys = [key.replace("\\.", ".") for key in re.split(r"(?<!\\)\.", at)]
    node = document
    for key in keys[:-1]:
        node = node[int(key)] if isinstance(node, list) else node.setdefault(key, {})
    last = int(keys[-1]) if isinstance(node, list) else keys[-1]
    if value is None:
        del node[last]
    else:
        node[last] = value


def main(kubectl, namespace, manifests, faults):
    def dry_run(document):
        command = [kubectl, "apply", "-n", namespace, "--dry-run=server", "--validate=strict", "-f", "-"]
        text = yaml.safe_dump(document)
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    def is_refused(run):
        return run.returncode != 0 or WARNING.search(run.stderr)

    failed = False
    for fault in yaml.safe_load(pathlib.Path(faults).read_text()):
        path = pathlib.Path(manifests) / f"{fault['from']}.yaml"
        documents = [it for it in yaml.safe_load_all(path.read_text()) if it and it["kind"] == fault["kind"]]
        document = documents[0]
        document["metadata"].pop("namespace", None)
        sound = not is_refused(dry_run(document))
        change(document, fault["at"], fault["value"])
        refused = is_refused(dry_run(document))
        good = sound and refused
        failed |= not good
        print(f"{'ok   ' if good else 'FAIL '} refused: {fault['name']}" + ("" if sound else " (refused without it, too)"))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
