#!/usr/bin/env bash
# Prints the changelog's section of a version; fails when there is none, or nothing in it.
#   release-notes.sh VERSION
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:?usage: release-notes.sh VERSION}
notes=$(awk -v version="$version" '
    /^## / { inside = ($2 == version || $2 == "[" version "]"); next }
    inside' CHANGELOG.md)
if ! grep -q '[^[:space:]]' <<< "$notes"; then
    echo "CHANGELOG.md has no section \"## $version\" with notes" >&2
    exit 1
fi
sed '/./,$!d' <<< "$notes"
