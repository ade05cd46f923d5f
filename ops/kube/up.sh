#!/usr/bin/env bash
# Start the control plane on loopback. usage: up.sh BUILD_DIR STATE_DIR
# BUILD_DIR is what build.sh filled. STATE_DIR must not exist; it gets kubeconfig, logs and pid files.
# Ports: SEKALI_KUBE_PORT (default 16443) and the two above it. kubectl must be on PATH.
set -Eeuo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$(dirname "$2")"
mkdir -m 0700 "$2"
dir=$(cd "$2" && pwd)
port=${SEKALI_KUBE_PORT:-16443}
etcd=http://127.0.0.1:$((port + 1))
peer=http://127.0.0.1:$((port + 2))
undo() { tail -n 3 "$dir"/*.log >&2; "$here/down.sh" "$dir"; }
trap 'undo; exit 1' ERR

start() { # PART FLAG...
    "$build/kubelab" "$@" </dev/null >"$dir/$1.log" 2>&1 &
    echo $! >"$dir/$1.pid"
}

start etcd --data-dir "$dir/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls "$etcd" --advertise-client-urls "$etcd" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer"

token=$(openssl rand -hex 16)
openssl genrsa -out "$dir/sa.key" 2048 2>/dev/null
printf '%s,admin,admin,system:masters\n' "$token" >"$dir/tokens.csv"
start apiserver --etcd-servers "$etcd" --bind-address 127.0.0.1 --secure-port "$port" --cert-dir "$dir" \
    --token-auth-file "$dir/tokens.csv" --authorization-mode Node,RBAC --endpoint-reconciler-type none \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$dir/sa.key" \
    --service-account-signing-key-file "$dir/sa.key" --service-cluster-ip-range 10.96.0.0/16
cat >"$dir/kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://127.0.0.1:$port", certificate-authority: apiserver.crt}}]
users: [{name: admin, user: {token: $token}}]
contexts: [{name: lab, context: {cluster: lab, user: admin}}]
current-context: lab
YAML
export KUBECONFIG=$dir/kubeconfig
for _ in $(seq 240); do
    kill -0 "$(cat "$dir/apiserver.pid")"
    [ -s "$dir/apiserver.crt" ] && kubectl get --raw /readyz >/dev/null 2>&1 && break
    sleep 0.25
done
kubectl get --raw /readyz >/dev/null

start controller-manager --kubeconfig "$KUBECONFIG" --secure-port 0 --leader-elect=false \
    --use-service-account-credentials --service-account-private-key-file "$dir/sa.key"
start scheduler --kubeconfig "$KUBECONFIG" --secure-port 0 --leader-elect=false
start kwok --kubeconfig "$KUBECONFIG" --config "$here/stages.yaml" --manage-all-nodes \
    --node-lease-duration-seconds 40

kubectl apply -f "$here/node.yaml" >/dev/null
kubectl create --save-config=false -f "$build/crds" >/dev/null
kubectl wait --for condition=Established crd --all --timeout 60s >/dev/null
kubectl wait --for condition=Ready node --all --timeout 60s >/dev/null
for _ in $(seq 240); do kubectl get serviceaccount default >/dev/null 2>&1 && break; sleep 0.25; done
echo "export KUBECONFIG=$KUBECONFIG"
