#!/usr/bin/env bash
# Installs the distribution packages that a build, the demo or the tests need. Says what it installs; installs nothing
# that is there. Debian and Ubuntu; elsewhere it names what is missing.
#   setup.sh build|demo|all
set -euo pipefail

scope=${1:-all}
again=$(cd "$(dirname "$0")" && pwd)/again.sh
missing=()

need() { # need PACKAGE COMMAND...: the package is missing unless the command succeeds
    local package=$1
    shift
    "$@" > /dev/null 2>&1 || missing+=("$package")
}

compiles() { # compiles HEADER: the compiler finds the header
    echo "#include <$1>" | cc -E -x c -
}

has_postgres() {
    local dir
    [ -n "${SEKALI_TEST_POSTGRES:-}" ] && [ "$scope" = all ] && return 0
    [ -n "${SEKALI_POSTGRES_BIN:-}" ] && return 0
    command -v initdb && command -v postgres && return 0
    for dir in /usr/lib/postgresql/*/bin; do
        [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && return 0
    done
    return 1
}

has_java() {
    local version
    version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 17 ]
}

has_pgbouncer() {
    [ -n "${SEKALI_TEST_PGBOUNCER:-}" ] || command -v pgbouncer || [ -x /usr/sbin/pgbouncer ]
}

has_browser() {
    command -v chromium || command -v chromium-browser || command -v google-chrome || command -v google-chrome-stable
}

has_node() {
    local version
    version=$(node --version | sed -n 's/^v\([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 20 ] && command -v npm
}

browser_tests() { # packages that drive the browser, with checked hashes; nothing when they are there
    local dir
    dir=$(dirname "$0")/../tests/browser
    [ "$scope" = all ] && has_node > /dev/null 2>&1 || return 0
    cmp -s "$dir/package-lock.json" "$dir/node_modules/lock" && return 0
    echo "installing into tests/browser: playwright-core, axe-core"
    if (cd "$dir" && "$again" npm ci --loglevel=error) > /dev/null; then
        cp "$dir/package-lock.json" "$dir/node_modules/lock"
    else
        echo "npm ci in tests/browser failed: the test of the console in a browser will say so" >&2
    fi
}

java_package() { # Debian 12 has 17 as its default, later releases a newer one, Ubuntu 20.04 an older one
    if apt-cache show openjdk-17-jre-headless 2> /dev/null | grep -q '^Version'; then
        echo openjdk-17-jre-headless
    else
        echo default-jre-headless
    fi
}

need build-essential command -v cc
need build-essential command -v c++
need make command -v make
need pkg-config command -v pkg-config
need libssl-dev compiles openssl/ssl.h
need zlib1g-dev compiles zlib.h
if [ "$scope" != build ]; then
    need postgresql has_postgres
fi
if [ "$scope" = all ] && [ -z "${SEKALI_TEST_KAFKA:-}" ]; then
    need JAVA has_java
    need maven command -v mvn
fi
if [ "$scope" = all ]; then
    need pgbouncer has_pgbouncer
    need chromium has_browser
    need nodejs has_node
    need npm has_node
fi

if ! command -v cargo > /dev/null; then
    echo "cargo is missing: install Rust 1.92 or newer with rustup, then run this again" >&2
    exit 1
fi
if [ ${#missing[@]} = 0 ]; then
    browser_tests
    exit 0
fi
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo > /dev/null || ! { sudo -n true 2> /dev/null || [ -t 0 ]; }; then
        echo "missing: ${missing[*]/JAVA/openjdk-17-jre-headless (or newer)}" >&2
        echo "install them, or run 'make setup' as root or with sudo" >&2
        exit 1
    fi
    as_root=(sudo)
fi
if ! command -v apt-get > /dev/null; then
    echo "missing (by their Debian names): ${missing[*]/JAVA/openjdk-17-jre-headless (or newer)}" >&2
    echo "this system has no apt-get: install them with its own package manager" >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { # the output matters only when the command fails
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" > "$log" 2>&1 < /dev/null || {
        tail -20 "$log" >&2
        echo "failed: $*" >&2
        exit 1
    }
}

quietly "$again" apt-get update
for index in "${!missing[@]}"; do
    if [ "${missing[index]}" = JAVA ]; then
        missing[index]=$(java_package)
    fi
done
echo "installing: ${missing[*]}"
if printf '%s\n' "${missing[@]}" | grep -qx postgresql && [ ! -e /etc/postgresql-common ]; then
    # The package would start a server of its own, on the usual port and for good. Only its programs are wanted.
    echo "(the distribution's PostgreSQL is told not to start a server: /etc/postgresql-common/createcluster.conf)"
    quietly mkdir -p /etc/postgresql-common
    quietly sh -c 'echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf'
fi
policy=/usr/sbin/policy-rc.d
if printf '%s\n' "${missing[@]}" | grep -qx pgbouncer && [ ! -e "$policy" ]; then
    # As above: the tests start poolers of their own. Others' services are told not to start for as long as this takes.
    quietly sh -c "printf '#!/bin/sh\nexit 101\n' > $policy && chmod 755 $policy"
    trap 'rm -f "$log"; "${as_root[@]}" rm -f "$policy"' EXIT
fi
quietly "$again" apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-confold "${missing[@]}"
browser_tests
