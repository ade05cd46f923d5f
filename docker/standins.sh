#!/usr/bin/env bash
# Builds local stand-ins for the public images that the tests, the Dockerfile and compose.yaml name, on a Debian 12 machine
# that can reach package registries but no image registry. An image that this script did not make is never replaced.
#
#   standins.sh [all|engine|base|postgres|kafka|rust|prometheus|compose|compose1|list|remove|stop-engine]...
#
# KAFKA_VERSION, KAFKA_TAGS, POSTGRES_TAGS, RUST_TAGS, PROMETHEUS_TAGS, COMPOSE_VERSION: what is built. REBUILD=1 builds
# again what is up to date, STANDIN_CACHE moves the work folder. DOCKER_HOST is honoured; DOCKERD_FLAGS are added when an
# engine has to be started.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${STANDIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/image-standins}
label=standin.inputs
kafka_version=${KAFKA_VERSION:-$(sed -n 's/.*image: apache.kafka:\([0-9.]*\).*/\1/p' "$here/compose.yaml")}
compose_version=${COMPOSE_VERSION:-v2.40.3}
base_image=debian:bookworm-slim
# postgres:11-alpine and the two 3.8.0 are what testcontainers-modules asks for by
# default: the name is right, the software behind it is the stand-in's.
read -r -a postgres_images <<<"${POSTGRES_TAGS:-postgres:15 postgres:15-bookworm postgres:11-alpine}"
read -r -a kafka_images <<<"${KAFKA_TAGS:-apache/kafka:$kafka_version apache/kafka:3.8.0 apache/kafka-native:3.8.0}"
prometheus_image=$(sed -n 's/.*image: \(prom.prometheus:.*\)/\1/p' "$here/compose.yaml")
read -r -a prometheus_images <<<"${PROMETHEUS_TAGS:-$prometheus_image}"

say() { printf 'standins: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

root=()
[ "$(id -u)" = 0 ] || root=(sudo)
as_root() { "${root[@]}" "$@"; }

# need COMMAND PACKAGE: installs the package when the command is not there.
need() {
  if ! command -v "$1" >/dev/null; then
    say "installing $2 for $1"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
  fi
}

engine_answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

engine_version() { docker version --format '{{.Server.Version}}, API {{.Server.APIVersion}}'; }

is_dockerd() { [ -s "$1" ] && [ "$(cat "/proc/$(<"$1")/comm" 2>/dev/null)" = dockerd ]; }

start_engine() {
  if engine_answers; then
    say "engine $(engine_version) answers"
    return
  fi
  need dockerd docker.io
  need docker docker.io
  need iptables iptables
  if [ -d /run/systemd/system ] && [ -z "${DOCKER_HOST:-}" ]; then
    as_root systemctl start docker
    say "engine $(engine_version) started by systemd"
    return
  fi
  if [ ! -e /sys/fs/cgroup/cgroup.controllers ] && [ ! -d /sys/fs/cgroup/memory ]; then
    need cgroupfs-mount cgroupfs-mount
    as_root cgroupfs-mount
  fi
  mkdir -p "$cache"
  local launcher deadline=$((SECONDS + 60))
  local -a flags
  read -r -a flags <<<"--pidfile $cache/dockerd.pid ${DOCKERD_FLAGS:-} ${DOCKER_HOST:+--host $DOCKER_HOST}"
  say "no engine answers: starting dockerd, log in $cache/dockerd.log"
  # Not through as_root: a function in the background keeps the caller's pipes open.
  "${root[@]}" setsid nohup dockerd "${flags[@]}" >"$cache/dockerd.log" 2>&1 </dev/null &
  launcher=$!
  until engine_answers; do
    if ! kill -0 "$launcher" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
      tail -n 20 "$cache/dockerd.log" >&2
      die "dockerd did not come up"
    fi
    sleep 0.2
  done
  say "engine $(engine_version) started, pid $(<"$cache/dockerd.pid")"
}

stop_engine() {
  local pidfile=$cache/dockerd.pid
  if ! is_dockerd "$pidfile"; then
    say "no dockerd of this script is running"
    return
  fi
  as_root kill "$(<"$pidfile")"
  while is_dockerd "$pidfile"; do sleep 0.2; done
  say "stopped the dockerd that this script had started"
}

# inputs_of IMAGE: the label that this script put on the image, empty if it did not.
inputs_of() { docker image inspect --format "{{index .Config.Labels \"$label\"}}" "$1" 2>/dev/null || true; }

is_foreign() { docker image inspect "$1" >/dev/null 2>&1 && [ -z "$(inputs_of "$1")" ]; }

# up_to_date INPUTS IMAGE...
up_to_date() {
  local inputs=$1 image
  shift
  [ "${REBUILD:-0}" = 1 ] && return 1
  for image in "$@"; do
    is_foreign "$image" || [ "$(inputs_of "$image")" = "$inputs" ] || return 1
  done
  say "$* up to date"
}

# digest FILE-OR-WORD...: one hash over files' contents and words.
digest() {
  local part
  for part in "$@"; do
    if [ -f "$part" ]; then cat "$part"; else printf '%s\n' "$part"; fi
  done | sha256sum | cut -c1-16
}

# put_tags BUILT IMAGE...: names the built image, leaving images of others alone.
put_tags() {
  local built=$1 image
  shift
  for image in "$@"; do
    if is_foreign "$image"; then
      say "$image is not a stand-in: kept"
    else
      docker tag "$built" "$image"
      say "$image is $(docker image inspect --format '{{.Id}}' "$built" | cut -c8-19)"
    fi
  done
}

# build NAME INPUTS CONTEXT IMAGE... [-- BUILD-ARGUMENT...]
build() {
  local name=$1 inputs=$2 context=$3
  shift 3
  local -a images=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do images+=("$1"); shift; done
  if [ $# -gt 0 ]; then shift; fi
  up_to_date "$inputs" "${images[@]}" && return
  say "building $name"
  mkdir -p "$cache"
  # The classic builder: every client and engine has it, with no plugin to look for.
  DOCKER_BUILDKIT=0 docker build --quiet --force-rm --label "$label=$inputs" --tag "standin/$name" "$@" "$context" \
    >"$cache/$name.log" 2>&1 || { tail -n 40 "$cache/$name.log" >&2; die "$name does not build"; }
  put_tags "standin/$name" "${images[@]}"
}

# debian_sources: 'URI SUITE' for each Debian source that this machine's apt uses.
debian_sources() {
  # shellcheck disable=SC2016  # apt expands these
  apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk '$1 == "Debian" && $3 ~ /^bookworm(-security|-updates)?$/ && $4 == "main" { print $2, $3 }' | sort -u
}

build_base() {
  need debootstrap debootstrap
  local sources mirror inputs tree
  sources=$(debian_sources)
  mirror=$(awk '$2 == "bookworm" { print $1; exit }' <<<"$sources")
  [ -n "$mirror" ] || die "apt knows no source for Debian bookworm"
  inputs=$(digest "$sources" "$(declare -f build_base)")
  up_to_date "$inputs" "$base_image" && return
  say "building $base_image with debootstrap"
  mkdir -p "$cache"
  tree=$(mktemp -d "$cache/base.XXXXXX")
  as_root debootstrap --variant=minbase bookworm "$tree" "$mirror" >"$cache/base.log" 2>&1 ||
    { tail -n 20 "$cache/base.log" >&2; die "debootstrap failed"; }
  awk '{ print "deb", $1, $2, "main" }' <<<"$sources" | as_root tee "$tree/etc/apt/sources.list" >/dev/null
  printf '#!/bin/sh\nexit 101\n' | as_root tee "$tree/usr/sbin/policy-rc.d" >/dev/null
  as_root chmod 755 "$tree/usr/sbin/policy-rc.d"
  printf '%s\n' 'path-exclude /usr/share/doc/*' 'path-include /usr/share/doc/*/copyright' 'path-exclude /usr/share/man/*' \
    'path-exclude /usr/share/locale/*' | as_root tee "$tree/etc/dpkg/dpkg.cfg.d/slim" >/dev/null
  # shellcheck disable=SC2016  # for the inner shell
  as_root sh -c 'rm -rf "$1"/var/cache/apt/archives/*.deb "$1"/var/lib/apt/lists/* "$1"/usr/share/locale/* \
    "$1"/var/log/*.log "$1"/etc/resolv.conf "$1"/etc/hostname
    find "$1/usr/share/doc" "$1/usr/share/man" ! -type d ! -name copyright -delete' sh "$tree"
  as_root tar --numeric-owner -C "$tree" -c . |
    docker import --change 'CMD ["bash"]' --change "LABEL $label=$inputs" - standin/base >/dev/null
  as_root rm -rf "$tree"
  put_tags standin/base "$base_image"
}

build_postgres() {
  build postgres "$(digest "$(inputs_of "$base_image")" "$here"/standins/postgres/*)" "$here/standins/postgres" \
    "${postgres_images[@]}"
}

build_prometheus() {
  build prometheus "$(digest "$(inputs_of "$base_image")" "$here"/standins/prometheus/*)" "$here/standins/prometheus" \
    "${prometheus_images[@]}"
}

build_kafka() {
  local inputs context=$cache/kafka
  inputs=$(digest "$(inputs_of "$base_image")" "$kafka_version" "$here"/standins/kafka/*)
  up_to_date "$inputs" "${kafka_images[@]}" && return
  need java openjdk-17-jre-headless
  need mvn maven
  rm -rf "$context"
  mkdir -p "$context"
  cp "$here"/standins/kafka/* "$context"
  say "resolving Kafka $kafka_version with Maven"
  mvn --quiet --batch-mode --file "$context/pom.xml" "-Dkafka.version=$kafka_version" dependency:copy-dependencies \
    "-DoutputDirectory=$context/libs" -DincludeScope=runtime >"$cache/maven.log" 2>&1 ||
    { tail -n 20 "$cache/maven.log" >&2; die "Maven does not resolve Kafka $kafka_version"; }
  build kafka "$inputs" "$context" "${kafka_images[@]}"
  rm -rf "$context"
}

build_rust() {
  local context=$cache/rust sysroot version host name inputs bin
  command -v rustup >/dev/null || die "no rustup here: the stand-in for rust holds this machine's toolchain"
  sysroot=$(readlink -f "$(rustc --print sysroot)")
  version=$(rustc --version | cut -d' ' -f2)
  host=$(rustc -vV | awk '$1 == "host:" { print $2 }')
  name=$version-$host
  local -a images
  read -r -a images <<<"${RUST_TAGS:-rust:$version-bookworm rust:${version%.*}-bookworm rust:1-bookworm}"
  inputs=$(digest "$(inputs_of "$base_image")" "$(rustc -vV)" "$here"/standins/rust/* /usr/local/share/ca-certificates/*.crt)
  up_to_date "$inputs" "${images[@]}" && return
  rm -rf "$context"
  mkdir -p "$context/ca" "$context/cargo/bin" "$context/rustup/toolchains/$name"
  cp "$here/standins/rust/Dockerfile" "$context"
  find /usr/local/share/ca-certificates -name '*.crt' -exec cp '{}' "$context/ca" ';'
  cp -L "$(command -v rustup)" "$context/cargo/bin/rustup"
  for bin in cargo rustc rustdoc rustfmt cargo-fmt cargo-clippy clippy-driver; do
    ln -s rustup "$context/cargo/bin/$bin"
  done
  printf 'version = "12"\nprofile = "minimal"\ndefault_toolchain = "%s"\n' "$name" >"$context/rustup/settings.toml"
  tar -C "$sysroot" --exclude=./share/doc --exclude=./share/man -c . | tar -C "$context/rustup/toolchains/$name" -x
  build rust "$inputs" "$context" "${images[@]}"
  rm -rf "$context"
}

# ours: the tags that this script gave. Images built on top of a stand-in inherit its
# label, so the name counts too.
ours() {
  docker images --filter "label=$label" --format '{{.Repository}}:{{.Tag}} {{.ID}} {{.Size}}' \
    --filter 'reference=debian' --filter 'reference=postgres' --filter 'reference=rust' \
    --filter 'reference=apache/kafka*' --filter 'reference=prom/*' --filter 'reference=standin/*' | sort
}

remove_images() {
  local image
  for image in $(ours | cut -d' ' -f1); do
    docker rmi "$image" >/dev/null
    say "removed $image"
  done
}

# The compose plugin: Debian 12 has only version 1. `go install` refuses the module,
# because its go.mod has exclude directives; as a dependency it builds.
build_compose() {
  local plugins=${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins module=github.com/docker/compose/v2
  if docker compose version >/dev/null 2>&1; then
    say "docker compose $(docker compose version --short) is there"
    return
  fi
  command -v go >/dev/null || die "go 1.24 or newer is needed to build compose (Debian 12's is too old)"
  say "building compose $compose_version"
  rm -rf "$cache/compose"
  mkdir -p "$cache/compose" "$plugins"
  (
    cd "$cache/compose"
    go mod init standin/compose
    go get "$module/cmd@$compose_version"
    go build -trimpath -ldflags "-s -w -X $module/internal.Version=$compose_version" -o docker-compose "$module/cmd"
  ) >"$cache/compose.log" 2>&1 || { tail -n 20 "$cache/compose.log" >&2; die "compose does not build"; }
  install -m 0755 "$cache/compose/docker-compose" "$plugins/docker-compose"
  rm -rf "$cache/compose"
  say "docker compose $(docker compose version --short) in $plugins"
}

if [ $# -eq 0 ]; then set -- all; fi
for part in "$@"; do
  started=$SECONDS
  case $part in
    all)
      start_engine
      build_base
      build_postgres
      build_kafka
      build_rust
      build_prometheus
      ours
      ;;
    engine) start_engine ;;
    base)
      start_engine
      build_base
      ;;
    postgres | kafka | rust | prometheus)
      start_engine
      build_base
      "build_$part"
      ;;
    list) ours ;;
    compose)
      need docker docker.io
      build_compose
      ;;
    compose1)
      need docker docker.io
      need docker-compose docker-compose
      ;;
    remove) remove_images ;;
    stop-engine) stop_engine ;;
    *) die "unknown part '$part': all, engine, base, postgres, kafka, rust, prometheus, compose, compose1, list, remove or stop-engine" ;;
  esac
  say "$part took $((SECONDS - started)) s"
done
