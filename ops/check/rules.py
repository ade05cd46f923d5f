#!/usr/bin/env python3
"""Checks what promtool does not: each alert has severity, texts, runbook and both tests; rendered rules are the source.

usage: rules.py lint RULES TESTS RUNBOOKS
       rules.py extract MANIFESTS OUT     writes the groups of the PrometheusRule as a rules file
       rules.py same RULES RULES          fails unless both say the same
"""
import pathlib
import sys

import yaml


def alerts(path):
    groups = yaml.safe_load(pathlib.Path(path).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def lint(rules, tests, runbooks):
    found = []
    fires, quiet = set(), set()
    for test in yaml.safe_load(pathlib.Path(tests).read_text())["tests"]:
        for case in test.get("alert_rule_test", []):
            (fires if case["exp_alerts"] else quiet).add(case["alertname"])
    names = [rule["alert"] for rule in alerts(rules)]
    for rule in alerts(rules):
        name, notes = rule["alert"], rule.get("annotations", {})
        if rule.get("labels", {}).get("severity") not in ("critical", "warning", "info"):
            found.append(f"{name}: severity is none of critical, warning, info")
        if "$value" not in notes.get("summary", ""):
            found.append(f"{name}: the summary shows no number")
        if not notes.get("description"):
            found.append(f"{name}: no description")
        if not notes.get("runbook_url", "").endswith(f"/ops/runbooks/{name}.md"):
            found.append(f"{name}: runbook_url does not end with /ops/runbooks/{name}.md")
        if not (pathlib.Path(runbooks) / f"{name}.md").exists():
            found.append(f"{name}: no runbook {runbooks}/{name}.md")
        if name not in fires:
            found.append(f"{name}: no test that it fires")
        if name not in quiet:
            found.append(f"{name}: no test that it does not fire")
    for path in pathlib.Path(runbooks).glob("Sekali*.md"):
        if path.stem not in names:
            found.append(f"{path}: no alert of this name")
    if len(set(names)) != len(names):
        found.append("an alert is defined twice")
    sys.exit("\n".join(found) if found else None)


def extract(manifests, out):
    documents = yaml.safe_load_all(pathlib.Path(manifests).read_text())
    rules = [it for it in documents if it and it["kind"] == "PrometheusRule"]
    if len(rules) != 1:
        sys.exit(f"{manifests}: {len(rules)} PrometheusRules")
    pathlib.Path(out).write_text(yaml.safe_dump(rules[0]["spec"], width=1000))


def same(one, other):
    first, second = (yaml.safe_load(pathlib.Path(path).read_text()) for path in (one, other))
    if first != second:
        sys.exit(f"{one} and {other} differ")


if __name__ == "__main__":
    {"lint": lint, "extract": extract, "same": same}[sys.argv[1]](*sys.argv[2:])
