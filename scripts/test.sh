#!/usr/bin/env bash
# Builds everything, starts one Kafka and one PostgreSQL around the whole suite, runs it, and says what did not run.
# SEKALI_TEST_ARGS chooses other tests than all, for instance "-p sekali-tests --test it -- harness::".
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
skips=$target/test-skips.txt
# The tests run the workspace's programs, which cargo test does not build for other crates. All targets at once: with
# fewer, dependencies have other features and are compiled twice.
cargo build --workspace --all-targets
rm -f "$skips"
# For the test of alerts; without it that one is skipped.
ops/tools/install.sh prometheus || true

read -r -a arguments <<< "${SEKALI_TEST_ARGS:---workspace}"
status=0
"$target/debug/sekali-test-servers" run cargo test --no-fail-fast "${arguments[@]}" || status=$?

if [ -s "$skips" ]; then
    echo "$(wc -l < "$skips") skipped:"
    sort "$skips"
else
    echo "0 skipped"
fi
exit "$status"
