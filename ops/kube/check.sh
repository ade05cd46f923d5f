#!/usr/bin/env bash
# Puts the chart through its life on a real Kubernetes API server with real controllers and pretended kubelets, and writes
# target/kube/verdict.json. Every values file of the chart gets a namespace that enforces the restricted Pod Security profile.
# Needs Go, Python and openssl; what is missing is said, and with CI=true that is a failure.
#   check.sh [VALUES]...   names of values files; all of them by default
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
target=${CARGO_TARGET_DIR:-target}
work=$target/kube
tools=$PWD/$target/tools
chart=ops/helm/sekali
log=$work/log
state=$work/state-$$
began=$SECONDS
passed=0 failed=0
checks=()
mkdir -p "$work"

skip() {
    echo "SKIP  kube-check: $1"
    echo "{\"verdict\": \"skipped\", \"reason\": \"$1\"}" > "$work/verdict.json"
    [ "${CI:-}" != true ] || { echo "a skip is a failure in CI" >&2 && exit 1; }
    exit 0
}
command -v go > /dev/null || skip "Go is missing: install 1.21 or newer, which fetches the version of ops/kube/go.mod itself"
for tool in openssl python3; do
    command -v $tool > /dev/null || skip "$tool is missing: install the package of this name"
done
ops/tools/install.sh helm python || skip "helm and kubectl could not be installed"
export PATH=$tools/bin:$PATH
python=$tools/python/bin/python
ops/kube/build.sh "$work/build" || skip "the control plane could not be built"

note() { # note TEXT GOOD
    checks+=("{\"check\": \"$1\", \"ok\": $2}")
    if [ "$2" = true ]; then
        passed=$((passed + 1)) && echo "ok    $1"
    else
        failed=$((failed + 1)) && echo "FAIL  $1" && grep -v '^[[:space:]]*$' "$log" | tail -n 4 | sed 's/^/      /'
    fi
}
ok() { # ok TEXT COMMAND...: the command must succeed
    local text=$1
    shift
    if "$@" > "$log" 2>&1; then note "$name: $text" true; else note "$name: $text" false; fi
}
refused() { # refused TEXT PATTERN COMMAND...: the command must fail and say PATTERN
    local text=$1 pattern=$2
    shift 2
    if ! "$@" > "$log" 2>&1 && grep -Eq "$pattern" "$log"; then note "$name: $text" true; else note "$name: $text" false; fi
}
equal() { [ "$1" = "$2" ] || { echo "got '$1', want '$2'" && return 1; }; }
namespace() {
    kubectl create namespace "$1" > /dev/null
    kubectl label namespace "$1" pod-security.kubernetes.io/{enforce,warn}=restricted > /dev/null
    # Named by one of the values files; the chart makes none.
    kubectl create serviceaccount workloads -n "$1" > /dev/null
}
# Helm with the values file, on images that the pretended kubelets know.
helm_with() { helm "$1" "$2" "$chart" -n "$ns" -f "$values" --set image.digest= "${@:3}"; }
# Every object, hooks too; a warning is an error here, because Pod Security speaks in warnings.
server_accepts() {
    local out
    out=$(helm template r "$chart" -n "$ns" -f "$values" | kubectl apply -n "$ns" --dry-run=server --validate=strict -f - 2>&1)
    local status=$?
    echo "$out"
    [ $status = 0 ] && ! grep -E '^(W[0-9]|Warning)|would violate' <<< "$out"
}
leftovers() {
    kubectl get deployments,statefulsets,jobs,pods,services,pdb,networkpolicies,configmaps,scaledobjects,podmonitors,prometheusrules \
        -n "$ns" --no-headers -o name | grep -v kube-root-ca
}
workloads() { kubectl get deployments,statefulsets -n "$ns" -o name; }

life() { # life NAME: install, test, upgrade, rollback, drain, uninstall
    name=$1
    values=$chart/ci/$name.yaml
    ns=kube-$name
    namespace "$ns"
    ok "the server accepts every object, without a warning" server_accepts
    if ! grep -q initContainer "$values"; then
        refused "a migration that hangs holds up the install" 'failed pre-install|timed out|context deadline' \
            helm_with install r --set image.tag=lab-hang --wait --timeout 5s
        ok "nothing runs before the migration has ended" equal "$(workloads)" ''
        helm uninstall r -n "$ns" > /dev/null 2>&1
    fi
    ok "install" helm_with install r --wait --timeout 90s
    ok "every workload has its replicas" kubectl wait --for condition=Ready pod -n "$ns" -l app.kubernetes.io/name=sekali --timeout 30s
    if ! grep -q 'tests: {enabled: false}' "$values"; then ok "helm test" helm test r -n "$ns" --timeout 90s; fi
    ok "upgrade with the same values" helm_with upgrade r --wait --timeout 90s
    if ! grep -q initContainer "$values"; then
        refused "a migration that fails stops the upgrade" 'pre-upgrade hooks failed|failed pre-upgrade' \
            helm_with upgrade r --set image.tag=lab-fail,migrate.backoffLimit=0 --wait --timeout 90s
    fi
    refused "a rollout that hangs is rolled back" 'rolled back' \
        helm_with upgrade r --set image.tag=lab-hang,migrate.mode=none,migrate.applyTopics=false --wait --timeout 8s --rollback-on-failure
    ok "rollback to the first revision" helm rollback r 1 -n "$ns" --wait --timeout 90s
    ok "a node can be drained" kubectl drain node-a --ignore-daemonsets --delete-emptydir-data --timeout 60s
    kubectl uncordon node-a > /dev/null
    ok "uninstall" helm uninstall r -n "$ns" --wait --timeout 60s
    kubectl delete job,pod --all -n "$ns" > /dev/null 2>&1 # hooks that failed are meant to stay
    ok "nothing else is left" equal "$(leftovers)" ''
    ns=$ns-long
    namespace "$ns"
    ok "a release name of 53 characters" helm_with install "$(printf 'r%.0s' {1..53})" --wait --timeout 60s
    kubectl delete namespace "$ns" --wait=false > /dev/null
}

autoscaling_begins_with_one() { # as the chart's README says
    name=minimal
    values=$chart/ci/minimal.yaml
    ns=kube-autoscaling
    namespace "$ns"
    helm_with install r --set groups.stock.replicas=3 --wait --timeout 60s > "$log" 2>&1
    helm_with upgrade r --set groups.stock.partitions=12,groups.stock.autoscaling.enabled=true \
        --set groups.stock.autoscaling.trigger=kafka >> "$log" 2>&1
    equal "$(kubectl get deployment r-sekali-stock -n "$ns" -o jsonpath='{.spec.replicas}')" 1
}

trap 'ops/kube/down.sh "$state" > /dev/null 2>&1' EXIT
ops/kube/up.sh "$work/build" "$state" > "$log" 2>&1 || { cat "$log" && exit 1; }
KUBECONFIG=$PWD/$state/kubeconfig
export KUBECONFIG

names=("$@")
if [ ${#names[@]} = 0 ]; then
    for file in "$chart"/ci/*.yaml; do names+=("$(basename "$file" .yaml)"); done
fi
for each in "${names[@]}"; do life "$each"; done
name=chart
ok "autoscaling in a running release begins with one replica, as documented" autoscaling_begins_with_one

rm -rf "$work/manifests"
mkdir -p "$work/manifests"
for file in "$chart"/ci/*.yaml; do helm template r "$chart" -n kube-faults -f "$file" > "$work/manifests/$(basename "$file")"; done
namespace kube-faults
"$python" ops/kube/faults.py kubectl kube-faults "$work/manifests" ops/kube/faults.yaml > "$work/faults.txt"
while IFS= read -r line; do
    echo "$line" > "$log"
    note "refused: ${line#* refused: }" "$([[ $line == ok* ]] && echo true || echo false)"
done < "$work/faults.txt"

verdict=passed
[ $failed = 0 ] || verdict=failed
refusals=$(grep -c '^ok' "$work/faults.txt")
cat > "$work/verdict.json" << JSON
{
  "verdict": "$verdict",
  "kubernetes": "$(kubectl version -o json 2> /dev/null | "$python" -c 'import json, sys; print(json.load(sys.stdin)["serverVersion"]["gitVersion"])')",
  "helm": "$(helm version --short)",
  "values_files": ${#names[@]},
  "passed": $passed,
  "failed": $failed,
  "faults_refused": $refusals,
  "seconds": $((SECONDS - began)),
  "checks": [
    $(IFS=$'\n'; echo "${checks[*]}" | sed '$!s/$/,/')
  ]
}
JSON
"$python" -m json.tool --indent 1 "$work/verdict.json" > "$work/verdict.tmp" || exit 1
mv "$work/verdict.tmp" "$work/verdict.json"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
