#!/usr/bin/env bash
# Runs a command that needs the network up to three times, with a pause between, because registries fail now and then.
#   again.sh COMMAND...
set -uo pipefail

for pause in 5 20 0; do
    "$@" && exit
    status=$?
    [ $pause = 0 ] || { echo "failed with $status, once more in $pause s: $*" >&2 && sleep $pause; }
done
exit "$status"
