#!/usr/bin/env python3
"""Checks the dashboards: variables, units, descriptions, and that each query is PromQL over metrics that exist.

usage: queries.py README.md DASHBOARD.json... | promtool check rules /dev/stdin
Writes each query as a recording rule on standard output, for promtool to parse. The README's table names the metrics.
"""
import json
import pathlib
import re
import sys


def lint(path, known):
    board, found, queries = json.loads(path.read_text()), [], []
    if not board.get("uid") or board.get("id") is not None:
        found.append("needs a uid, and null as id")
    names = [it["name"] for it in board["templating"]["list"]]
    if names[:1] != ["datasource"]:
        found.append("the first variable is not the datasource")
    for panel in board["panels"]:
        if panel["type"] == "row":
            continue
        title = panel["title"]
        if not panel.get("description"):
            found.append(f"{title}: no description")
        if not panel["fieldConfig"]["defaults"].get("unit"):
            found.append(f"{title}: no unit")
        if not panel.get("targets"):
            found.append(f"{title}: no query")
        for target in panel.get("targets", []):
            expr = target["expr"]
            for variable in re.findall(r"\$(\w+)", expr):
                if not variable.startswith("__") and variable not in names:
                    found.append(f"{title}: no variable ${variable}")
            for metric in re.findall(r"\b(?:sekali|process)_\w+", expr):
                base = re.sub(r"_(bucket|sum|count)$", "", metric)
                if metric not in known and base not in known and not metric.startswith("process_"):
                    found.append(f"{title}: no metric {metric}")
            queries.append(expr.replace("$__rate_interval", "5m").replace("$", ""))
    return [f"{path}: {it}" for it in found], queries


def main(readme, *boards):
    known = set(re.findall(r"^\| `(sekali_\w+)` \|", pathlib.Path(readme).read_text(), re.M))
    found, queries = [], []
    for board in boards:
        problems, more = lint(pathlib.Path(board), known)
        found += problems
        queries += more
    if found:
        sys.exit("\n".join(found))
    rules = [{"record": f"panel:query:{index}", "expr": expr} for index, expr in enumerate(queries)]
    print(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
