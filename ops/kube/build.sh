#!/usr/bin/env bash
# Builds the control plane and the CRDs, unless OUTDIR has them for these sources and this Go.
#   build.sh OUTDIR           -> OUTDIR/kubelab, OUTDIR/crds/*.yaml
#   build.sh OUTDIR PART...   only these parts, in order: modules, crds, clients, apiserver, server
# Takes some five minutes on two cores the first time, and 4 GB in Go's caches.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
stamp=$(cat "$here"/go.mod "$here"/go.sum "$here"/main.go "$here"/crds/* "$here"/build.sh <(go version) | sha256sum)
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOWORK=off

# Whatever comes from the network; the other parts need none.
modules() {
    local dir
    for dir in "$here" "$here/crds"; do "$here/../../scripts/again.sh" go -C "$dir" mod download; done
}

# The CRDs are generated from the operators' API types.
crds() {
    rm -rf "$out/all"
    go -C "$here/crds" tool controller-gen crd output:dir="$out/all" \
        paths=github.com/kedacore/keda/v2/apis/keda/v1alpha1 \
        paths=github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1
    mkdir -p "$out/crds"
    cp "$out"/all/keda.sh_{scaledobjects,triggerauthentications}.yaml \
        "$out"/all/monitoring.coreos.com_{podmonitors,prometheusrules}.yaml "$out/crds"
    rm -rf "$out/all"
}

# Not optimising saves a third of the build and costs a second at start.
compile=(build -trimpath -gcflags 'all=-N -l -dwarf=false')

# Packages of the server that take longest, into Go's cache: so the build can be interrupted, and no part takes long.
clients() {
    go -C "$here" "${compile[@]}" k8s.io/client-go/informers
}

apiserver() {
    go -C "$here" "${compile[@]}" k8s.io/kubernetes/cmd/kube-apiserver/app
}

server() {
    local version major minor at=k8s.io/component-base/version flags
    version=$(awk '$1 == "k8s.io/kubernetes" && $2 ~ /^v/ {print $2; exit}' "$here/go.mod")
    IFS=. read -r major minor _ <<< "${version#v}"
    # Without a version the server calls itself v0.0.0, and Helm refuses charts that name a kubeVersion.
    flags="-s -w -X $at.gitVersion=$version -X $at.gitMajor=$major -X $at.gitMinor=$minor -X $at.gitTreeState=clean"
    go -C "$here" "${compile[@]}" -ldflags "$flags" -o "$out/kubelab" .
}

parts=("${@:2}")
[ ${#parts[@]} -gt 0 ] || parts=(modules crds clients apiserver server)
for part in "${parts[@]}"; do
    [ "$(cat "$out/$part.stamp" 2> /dev/null)" != "$stamp" ] || continue
    begin=$SECONDS
    echo "building a Kubernetes control plane into $1: $part"
    "$part"
    echo "$stamp" > "$out/$part.stamp"
    echo "$part took $((SECONDS - begin)) s"
done
