#!/usr/bin/env bash
# Prints the changelog's section of a version; fails when there is none, or nothing in it.
#   release-notes.sh VERSION [CHANGELOG]
set -euo pipefail

version=${1:?usage: release-notes.sh VERSION [CHANGELOG]}
changelog=${2:-$(dirname "$0")/../CHANGELOG.md}
notes=$(awk -v version="$version" '
    /^## / { inside = ($2 == version || $2 == "[" version "]"); next }
    inside' "$changelog")
if ! grep -q '[^[:space:]]' <<< "$notes"; then
    echo "$changelog has no section \"## $version\" with notes" >&2
    exit 1
fi
sed '/./,$!d' <<< "$notes"
