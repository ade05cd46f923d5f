#!/usr/bin/env python3
"""Checks that the chart refuses each of the bad values, with the sentence that it should say.

usage: refused.py HELM CHART CASES.yaml
"""
import pathlib
import subprocess
import sys
import tempfile

import yaml


def main(helm, chart, cases):
    found = []
    listed = yaml.safe_load(pathlib.Path(cases).read_text())
    for case in listed:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as values:
            yaml.safe_dump(case["values"], values)
            values.flush()
            command = [helm, "template", "r", chart, "-f", f"{chart}/ci/{case['over']}.yaml", "-f", values.name]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode == 0:
            found.append(f"{case['name']}: not refused")
        elif case["says"] not in run.stderr:
            found.append(f"{case['name']}: does not say {case['says']!r} but {run.stderr.strip()[-300:]}")
    if found:
        sys.exit("\n".join(found))
    print(f"{len(listed)} refused")


if __name__ == "__main__":
    main(*sys.argv[1:])
