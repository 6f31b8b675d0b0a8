#!/bin/sh
# Installs the programs that tests run in terminals, those that agents search with, and what fuzzing and attacks need, from Debian's packages, where they are missing.
set -eu

missing=
for program in vim htop tmux less git bash python3; do
    command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
# The search tools of agents run these; their packages have other names.
command -v rg >/dev/null 2>&1 || missing="$missing ripgrep"
command -v fd >/dev/null 2>&1 || command -v fdfind >/dev/null 2>&1 || missing="$missing fd-find"
# libFuzzer is C++, built with the fuzz targets.
command -v c++ >/dev/null 2>&1 || missing="$missing g++"
[ -n "$missing" ] || exit 0

echo "installing:$missing" >&2
if ! command -v apt-get >/dev/null 2>&1; then
    echo "there is no apt-get here; install these with your own package manager:$missing" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" -ne 0 ]; then
    as_root=sudo
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # the list is words
$as_root apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 || {
    $as_root apt-get update >/dev/null
    $as_root apt-get install -y --no-install-recommends $missing >/dev/null
}
