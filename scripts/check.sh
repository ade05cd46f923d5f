#!/usr/bin/env bash
# Format, lints, house rules, and dependencies with their licences.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all -- --check
cargo clippy --workspace --all-targets --quiet -- -D warnings
# The whole workspace, though it is one test: so its dependencies are those that the tests need as well.
cargo test --quiet --workspace --test tidy
if command -v cargo-deny > /dev/null; then
    cargo deny --offline check bans licenses sources
else
    echo "cargo-deny is not installed: licences and sources were checked by the tidy test alone"
fi
if command -v shellcheck > /dev/null; then
    shellcheck scripts/*.sh .ci/run
fi
