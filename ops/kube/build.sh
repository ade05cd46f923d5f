#!/usr/bin/env bash
# Builds the control plane and the CRDs, unless OUTDIR has them for these sources and this Go.
#   build.sh OUTDIR        -> OUTDIR/kubelab, OUTDIR/crds/*.yaml
# Takes some five minutes on two cores the first time, and 4 GB in Go's caches.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
stamp=$(cat "$here"/go.mod "$here"/go.sum "$here"/main.go "$here"/crds/* "$here"/build.sh <(go version) | sha256sum)
[ "$(cat "$out/stamp" 2> /dev/null)" = "$stamp" ] && exit
version=$(awk '$1 == "k8s.io/kubernetes" && $2 ~ /^v/ {print $2; exit}' "$here/go.mod")
IFS=. read -r major minor _ <<< "${version#v}"
at=k8s.io/component-base/version
# Without a version the server calls itself v0.0.0, and Helm refuses charts that name a kubeVersion.
flags="-s -w -X $at.gitVersion=$version -X $at.gitMajor=$major -X $at.gitMinor=$minor -X $at.gitTreeState=clean"
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOWORK=off
echo "building a Kubernetes $version control plane into $1 (five minutes the first time)"
cd "$here"
# Not optimising saves a third of the build and costs a second at start.
go build -trimpath -gcflags 'all=-N -l -dwarf=false' -ldflags "$flags" -o "$out/kubelab" .
# The CRDs are generated from the operators' API types.
cd "$here/crds"
rm -rf "$out/all"
go tool controller-gen crd output:dir="$out/all" \
    paths=github.com/kedacore/keda/v2/apis/keda/v1alpha1 \
    paths=github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1
mkdir -p "$out/crds"
cp "$out"/all/keda.sh_{scaledobjects,triggerauthentications}.yaml \
    "$out"/all/monitoring.coreos.com_{podmonitors,prometheusrules}.yaml "$out/crds"
rm -rf "$out/all"
echo "$stamp" > "$out/stamp"
