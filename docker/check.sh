#!/usr/bin/env bash
# Checks the image, the compose file and the tests that start containers (`make test-containers`). Starts an engine where
# none answers and it may, and stops it again; builds stand-ins where images cannot be pulled. Leaves nothing running.
#
#   check.sh [PART]...    image, compose, testcontainers; all of them without an argument
#
# Prints `ok NAME` or `FAILED NAME: why`, and writes target/containers/verdict.json. What cannot run is counted as skipped;
# with CI=true a skip is a failure. Status 77 says that nothing ran, because this machine may not start an engine.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(image compose testcontainers)
for part in "${parts[@]}"; do
    [[ " image compose testcontainers " == *" $part "* ]] || { echo "unknown part $part: image, compose, testcontainers" >&2; exit 2; }
done
target=${CARGO_TARGET_DIR:-target}
work=$target/containers
log=$work/log
project=sekali-check-$$
begin=$SECONDS
rm -rf "$work"
mkdir -p "$work"
# Another container of the same name, port or tag is somebody else's.
export SEKALI_TAG=check SEKALI_REVISION
SEKALI_REVISION=$(git rev-parse --short HEAD 2> /dev/null || echo unknown)
image=sekali:$SEKALI_TAG
grace=35
passed=0 failed=0 skipped=0 results=() figures=()
may_engine=true engine_is_ours=false compose_was_up=false

note() { # note OUTCOME NAME [WHY]: keeps a result for the verdict
    local why
    why=$(tr -d '"\\\000-\037' <<< "${3:-}")
    results+=("$(printf '{"name": "%s", "outcome": "%s", "why": "%s"}' "$2" "$1" "$why")")
}
ok() {
    passed=$((passed + 1))
    note ok "$1"
    echo "ok $1"
}
failed() { # failed NAME WHY
    failed=$((failed + 1))
    note failed "$1" "$2"
    echo "FAILED $1: $2"
}
skip() { # skip NAME WHY
    skipped=$((skipped + 1))
    note skipped "$1" "$2"
    echo "SKIPPED $1: $2"
}
# Runs a command; its last line says why it failed, and what it printed before is shown indented.
check() { # check NAME COMMAND...
    local name=$1
    shift
    if "$@" > "$log" 2>&1; then
        ok "$name"
        return 0
    fi
    failed "$name" "$(grep -v '^[[:space:]]*$' "$log" | tail -1)"
    grep -v '^[[:space:]]*$' "$log" | tail -30 | sed 's/^/      /'
    return 1
}
figure() { # figure NAME NUMBER
    figures+=("$(printf '"%s": %s' "$1" "$2")")
}
wants() {
    local part
    for part in "${parts[@]}"; do
        [ "$part" = "$1" ] && return 0
    done
    return 1
}
free_port() {
    local port
    while port=$((20000 + RANDOM % 20000)); do
        (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null || { echo "$port" && return; }
    done
}

# --- engine, images, compose

have_engine() {
    docker version --format '{{.Server.Version}}' > "$log" 2>&1 && return
    [ "$(id -u)" = 0 ] || sudo -n true 2> /dev/null || return 1
    command -v apt-get > /dev/null || return 1
    docker/standins.sh engine || return 1
    engine_is_ours=true
}
# What the Dockerfile, the compose file and the tests name.
images() {
    sed -n 's/^FROM \([^ ]*\).*/\1/p' docker/Dockerfile | sed "s/\${RUST}/$(sed -n 's/^ARG RUST=//p' docker/Dockerfile)/"
    sed -n 's/.*image: \(postgres:.*\|apache.kafka:.*\)/\1/p' docker/compose.yaml
    # The version that the tests ask testcontainers for.
    sed -n 's/.*POSTGRES_IMAGE: &str = "\(.*\)".*/postgres:\1/p' tests/src/harness/versions.rs
}
have_images() {
    local name
    local -a missing=()
    while read -r name; do
        docker image inspect "$name" > /dev/null 2>&1 || docker pull -q "$name" > /dev/null 2>&1 || missing+=("$name")
    done < <(images)
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "cannot be pulled: ${missing[*]}; building stand-ins from packages (docker/README.md)"
    docker/standins.sh base postgres kafka rust
}
# The second generation where it is installed. To build it takes Go and some minutes (standins.sh compose), and the first
# generation, which reads the same file, is a package.
have_compose() {
    if docker compose version > /dev/null 2>&1; then
        compose_program=(docker compose)
        return
    fi
    command -v docker-compose > /dev/null || docker/standins.sh compose1 || docker/standins.sh compose || return 1
    if docker compose version > /dev/null 2>&1; then
        compose_program=(docker compose)
    else
        compose_program=(docker-compose)
    fi
}
# With BuildKit, which a client from 23 on reaches through a plugin that may be missing, and an older one by itself.
build_image() {
    local client
    if docker compose version > /dev/null 2>&1; then
        compose build worker
        return
    fi
    for client in $(type -ap docker); do
        if "$client" buildx version > /dev/null 2>&1 || [ "$("$client" version --format '{{.Client.Version}}' | cut -d. -f1)" -lt 23 ]; then
            DOCKER_BUILDKIT=1 "$client" build --build-arg REVISION="$SEKALI_REVISION" -f docker/Dockerfile -t "$image" .
            return
        fi
    done
    echo "no docker command here reaches BuildKit: install the plugin buildx"
    return 1
}
compose() { "${compose_program[@]}" -p "$project" -f docker/compose.yaml "$@"; }

# --- the image

inspect() { docker image inspect --format "$1" "$image"; }
is_not_root() {
    local user
    user=$(inspect '{{.Config.User}}')
    [[ $user =~ ^[1-9][0-9]*:[1-9][0-9]*$ ]] || { echo "USER is '$user', not numbers beyond 0" && return 1; }
    user=$(docker run --rm --network none --entrypoint id "$image" -u)
    [ "$user" -gt 0 ] || { echo "it runs as user $user" && return 1; }
}
hardened=(--rm --read-only --cap-drop ALL --security-opt no-new-privileges --network none)
runs_hardened() {
    local said
    said=$(docker run "${hardened[@]}" "$image" --version) || return 1
    [[ $said == "sekali "* ]] || { echo "sekali --version says '$said'" && return 1; }
    said=$(docker run "${hardened[@]}" --entrypoint sekali-worker "$image" --version) || return 1
    [[ $said == "sekali-worker "* ]] || { echo "sekali-worker --version says '$said'" && return 1; }
}
has_labels() {
    local label value
    for label in title description version revision licenses; do
        value=$(inspect "{{index .Config.Labels \"org.opencontainers.image.$label\"}}")
        [ -n "$value" ] || { echo "label org.opencontainers.image.$label is missing" && return 1; }
    done
    value=$(inspect '{{index .Config.Labels "org.opencontainers.image.version"}}')
    grep -q "^version = \"$value\"" Cargo.toml || { echo "label version is $value, and Cargo.toml has another" && return 1; }
    value=$(inspect '{{index .Config.Labels "org.opencontainers.image.revision"}}')
    [ "$value" = "$SEKALI_REVISION" ] || { echo "label revision is $value instead of $SEKALI_REVISION" && return 1; }
}
has_health_check() {
    local test said
    test=$(inspect '{{json .Config.Healthcheck.Test}}')
    [ "$test" = '["CMD","sekali","health"]' ] || { echo "HEALTHCHECK is $test" && return 1; }
    # Nothing listens here, so that it must say no, in a sentence.
    said=$(docker run "${hardened[@]}" "$image" health 2>&1) && { echo "health is content with nothing" && return 1; }
    [[ $said == *"does not answer"* ]] || { echo "health says '$said'" && return 1; }
}
size_max=60000000
is_small() {
    [ "$size" -le $size_max ] || { echo "$size bytes compressed, more than $size_max" && return 1; }
}
check_image() {
    local started=$SECONDS
    check "image: build" build_image || return
    echo "   by ${compose_program[*]} $("${compose_program[@]}" version --short)"
    figure image_build_seconds $((SECONDS - started))
    check "image: user without rights" is_not_root
    check "image: both programs run with a read-only root, no capabilities and no network" runs_hardened
    check "image: labels" has_labels
    check "image: health check through the program" has_health_check
    size=$(docker save "$image" | gzip -6 | wc -c)
    figure image_bytes_compressed "$size"
    echo "   $((size / 1000000)) MB compressed, $(inspect '{{.Size}}') bytes unpacked"
    check "image: at most $((size_max / 1000000)) MB compressed" is_small
}

# --- compose

containers() { docker ps -a --filter "label=com.docker.compose.project=$project" --format '{{.Names}}' "$@"; }
of_role() { containers --filter "label=com.docker.compose.service=$1"; }
# Every container is healthy, or has ended well. Both generations of Compose are asked the same way.
wait_until_healthy() {
    local name state deadline=$((SECONDS + 180)) open
    while [ $SECONDS -lt $deadline ]; do
        open=
        for name in $(containers); do
            state=$(docker inspect --format '{{.State.Status}} {{.State.ExitCode}} {{if .State.Health}}{{.State.Health.Status}}{{end}}' "$name")
            case $state in
                "running 0 healthy" | "exited 0 "*) ;;
                exited* | dead*) docker logs --tail 5 "$name" && echo "$name: $state" && return 1 ;;
                *) open+="$name: $state; " ;;
            esac
        done
        [ -n "$open" ] || return 0
        sleep 1
    done
    echo "not healthy after 180 s: $open"
    return 1
}
comes_up() { # comes_up ARGUMENT...
    compose up -d "$@" && wait_until_healthy
}
are_hardened() {
    local name found
    for name in $(of_role worker) $(of_role relay) $(of_role console); do
        found=$(docker inspect --format '{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.SecurityOpt}} {{.Config.User}}' "$name")
        [[ $found == "true [ALL] [no-new-privileges:true] 65532:65532" ]] || { echo "$name: $found" && return 1; }
    done
    # A password in the environment would be in every crash report.
    for name in $(containers); do
        ! docker inspect --format '{{json .Config.Env}}' "$name" | grep -qF "$(< docker/secrets/postgres_password)" ||
            { echo "$name has the password in its environment" && return 1; }
    done
}
# The commands that the README shows.
readme_commands() {
    local lines=1000 processed deadline=$((SECONDS + 60))
    seq $lines | sed 's/.*/{"id": "readme-&", "type": "stock.adjusted", "sku": "SKU-1", "delta": 1}/' |
        compose exec -T relay sekali produce - --topic stock --repeat-every 10 || return 1
    while [ $SECONDS -lt $deadline ]; do
        processed=$(sql "SELECT quantity FROM stock WHERE sku = 'SKU-1'")
        [ "$processed" = $lines ] && break
        sleep 0.5
    done
    [ "$processed" = $lines ] || { echo "quantity $processed instead of $lines" && return 1; }
    compose exec -T relay sekali lag && compose exec -T relay sekali dlq groups
}
sql() { compose exec -T postgres psql -qAt -U sekali -d sekali -c "$1" < /dev/null; }
doctor_is_content() { compose exec -T relay sekali doctor < /dev/null; }
console_takes_a_login() {
    local address=http://127.0.0.1:$SEKALI_CONSOLE_PORT/api/v1/groups status
    status=$(curl -s -o /dev/null -w '%{http_code}' "$address")
    [ "$status" = 401 ] || { echo "without a token it answers $status" && return 1; }
    status=$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $(< docker/secrets/console_token)" "$address")
    [ "$status" = 200 ] || { echo "with the token it answers $status" && return 1; }
}
judge() { # judge PART: what the program of tests/containers finds
    "$target/debug/sekali-containers" "$1" --project "$project" --kafka "127.0.0.1:$SEKALI_KAFKA_PORT" \
        --postgres "postgres://sekali:$(< docker/secrets/postgres_password)@127.0.0.1:$SEKALI_POSTGRES_PORT/sekali"
}
judged() { # judged NAME PART
    check "$1" judge "$2" || return
    sed -n 's/^  "\(.*\)": \([0-9.]*\),\{0,1\}$/   \1 \2/p' "$work/$2.json"
    figure "${2//-/_}" "$(cat "$work/$2.json")"
}
stop_cleanly() {
    local role name began status
    for role in relay console; do
        name=$(of_role $role)
        began=$SECONDS
        docker stop --time $grace "$name" > /dev/null || return 1
        status=$(docker inspect --format '{{.State.ExitCode}}' "$name")
        [ "$status" = 0 ] && [ $((SECONDS - began)) -lt $grace ] ||
            { echo "$role ended with $status after $((SECONDS - began)) s" && return 1; }
    done
}
# Prometheus scrapes what is there and has read the rules; the panels' queries are another test's: tests/it/ops_prometheus.
prometheus_scrapes() {
    local address=http://127.0.0.1:$SEKALI_PROMETHEUS_PORT/api/v1 deadline=$((SECONDS + 60)) up rules
    compose --profile dashboards up -d prometheus || return 1
    while [ $SECONDS -lt $deadline ]; do
        up=$(curl -s "$address/targets" | grep -o '"health":"up"' | wc -l)
        [ "$up" -ge 3 ] && break
        sleep 1
    done
    [ "$up" -ge 3 ] || { echo "$up targets are up instead of three: $(curl -s "$address/targets" | tail -c 500)" && return 1; }
    rules=$(curl -s "$address/rules?type=alert" | grep -o '"type":"alerting"' | wc -l)
    [ "$rules" -ge 40 ] || { echo "$rules alerts are loaded" && return 1; }
}
grafana_has_dashboards() {
    local address=http://127.0.0.1:$SEKALI_GRAFANA_PORT/api deadline=$((SECONDS + 90)) found
    compose --profile dashboards up -d grafana || return 1
    while [ $SECONDS -lt $deadline ]; do
        found=$(curl -s "$address/search?type=dash-db" | grep -o '"uid"' | wc -l)
        [ "$found" -ge 2 ] && return 0
        sleep 1
    done
    echo "$found dashboards are provisioned"
    return 1
}
check_dashboards() {
    local prometheus grafana
    prometheus=$(sed -n 's/.*image: \(prom.prometheus:.*\)/\1/p' docker/compose.yaml)
    grafana=$(sed -n 's/.*image: \(grafana.grafana:.*\)/\1/p' docker/compose.yaml)
    if docker image inspect "$prometheus" > /dev/null 2>&1 || docker pull -q "$prometheus" > "$log" 2>&1 ||
        docker/standins.sh prometheus > "$log" 2>&1; then
        check "compose: Prometheus scrapes workers and relay, and has the rules" prometheus_scrapes
    else
        skip "compose: Prometheus" "no image and no stand-in: $(tail -1 "$log")"
    fi
    if docker image inspect "$grafana" > /dev/null 2>&1 || docker pull -q "$grafana" > "$log" 2>&1; then
        check "compose: Grafana has the dashboards" grafana_has_dashboards
    else
        # No package has it, so that there is no stand-in: this is no part of the check here, and said so.
        echo "   Grafana cannot be pulled and has no stand-in: its container is not checked (its queries are, by make test)"
    fi
}
nothing_is_left() {
    compose --profile dashboards down -v --remove-orphans || return 1
    compose_was_up=false
    local left
    left=$(containers; docker volume ls -q --filter "label=com.docker.compose.project=$project"
        docker network ls -q --filter "label=com.docker.compose.project=$project")
    [ -z "$left" ] || { echo "still there: $left" && return 1; }
}
check_compose() {
    local started=$SECONDS
    check "compose: the judge is built" cargo build -q -p sekali-tests --bin sekali-containers || return
    compose_was_up=true
    # Short, so that the check is: three retries take three and a half seconds.
    export SEKALI_RETRY_DELAYS='["500ms","1s","2s"]' SEKALI_SESSION_TIMEOUT=6s
    started=$SECONDS
    check "compose: comes up healthy" comes_up || return
    figure compose_up_seconds $((SECONDS - started))
    check "compose: containers without rights, secrets as files" are_hardened
    check "compose: the commands of the README" readme_commands
    check "compose: doctor is content" doctor_is_content
    check "compose: the console takes a login" console_takes_a_login
    judged "compose: a worker is killed, and each event takes effect once or is one dead letter" main-work
    check_dashboards
    if check "compose: a third worker" comes_up --no-recreate --scale worker=3; then
        judged "compose: three workers restart under load, nothing lost or doubled, no partition unowned for 5 s" rolling
    fi
    check "compose: relay and console end by SIGTERM with status 0" stop_cleanly
}

# --- testcontainers

# From few modules: that they work on these servers is shown by make test.
run_on_containers() {
    cargo build -q --workspace --bins || return 1
    env -u SEKALI_TEST_KAFKA -u SEKALI_TEST_POSTGRES -u SEKALI_TEST_CONTAINERS \
        "$target/debug/sekali-test-servers" run cargo test -q -p sekali-tests --test it -- \
        outcomes:: cli::produce harness::records harness::databases
}
came_from_containers() {
    local server
    for server in kafka postgres; do
        grep -q "^$server: container of " "$work/testcontainers.log" ||
            { grep "^$server: " "$work/testcontainers.log" || echo "$server is not named"; return 1; }
    done
}
check_testcontainers() {
    local started=$SECONDS before
    before=$(docker ps -aq | sort)
    check "testcontainers: integration tests" run_on_containers
    cp "$log" "$work/testcontainers.log"
    check "testcontainers: both servers were containers" came_from_containers
    check "testcontainers: no container is left" diff <(printf '%s' "$before") <(printf '%s' "$(docker ps -aq | sort)")
    figure testcontainers_seconds $((SECONDS - started))
}

listed() { # listed ITEM...: with commas between them
    [ $# -eq 0 ] || printf '%s' "$1"
    [ $# -lt 2 ] || printf ',\n%s' "${@:2}"
    echo
}
finish() {
    local status=$?
    trap - EXIT
    if [ "$compose_was_up" = true ]; then
        [ "$failed" = 0 ] || compose logs --no-color > "$work/compose.log" 2>&1
        check "compose: nothing is left" nothing_is_left
    fi
    docker image rm "$image" > /dev/null 2>&1
    [ "$engine_is_ours" = false ] || docker/standins.sh stop-engine
    local good=true
    [ "$failed" = 0 ] && [ "$status" = 0 ] && [ $((passed + skipped)) -gt 0 ] || good=false
    [ "$skipped" = 0 ] || [ "${CI:-}" != true ] || good=false
    figure seconds $((SECONDS - begin))
    {
        printf '{\n"ok": %s, "passed": %s, "failed": %s, "skipped": %s,\n"checks": [\n' "$good" "$passed" "$failed" "$skipped"
        listed "${results[@]}"
        printf '],\n"figures": {\n'
        listed "${figures[@]}"
        printf '}\n}\n'
    } > "$work/verdict.json"
    echo "$passed passed, $failed failed, $skipped skipped in $((SECONDS - begin)) s: $work/verdict.json"
    [ "$skipped" = 0 ] || [ "${CI:-}" != true ] || echo "a skip is a failure in CI" >&2
    [ "$may_engine" = true ] || exit 77
    [ $good = true ] || exit 1
}
trap finish EXIT
trap 'exit 130' INT TERM

if ! have_engine; then
    may_engine=false
    skip "everything" "no Docker engine answers, and none can be started: $(tail -1 "$log")"
    exit 0
fi
if ! have_compose > "$log" 2>&1; then
    skip "image and compose" "neither docker compose nor docker-compose is here: $(tail -1 "$log")"
    parts=(testcontainers)
fi
check "images" have_images || exit 1
export SEKALI_KAFKA_PORT SEKALI_POSTGRES_PORT SEKALI_CONSOLE_PORT SEKALI_PROMETHEUS_PORT SEKALI_GRAFANA_PORT
SEKALI_KAFKA_PORT=$(free_port) SEKALI_POSTGRES_PORT=$(free_port) SEKALI_CONSOLE_PORT=$(free_port)
SEKALI_PROMETHEUS_PORT=$(free_port) SEKALI_GRAFANA_PORT=$(free_port)
if wants image || wants compose; then
    check_image
fi
if wants compose && [ "$failed" = 0 ]; then
    check_compose
fi
if wants testcontainers; then
    check_testcontainers
fi
