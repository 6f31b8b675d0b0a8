#!/bin/sh
# Installs what builds and tests the browser app (see package.json) into web/node_modules, and with --tests the browser
# that runs its tests. Safe to run again: it does nothing when what is installed matches the lock file.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cd "$here"

if [ "${1:-}" = "--tests" ] && [ ! -x /usr/bin/chromium ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "web: the tests need Chromium at /usr/bin/chromium; install it, then run this again" >&2
        exit 1
    fi
    as_root=""
    [ "$(id -u)" = 0 ] || as_root=sudo
    $as_root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends \
        chromium fonts-noto-core fonts-noto-cjk fonts-noto-color-emoji >/dev/null
    echo "web: Chromium installed"
fi

stamp=node_modules/.installed-lock
if [ -f node_modules/vite/bin/vite.js ] && cmp -s package-lock.json "$stamp"; then
    echo "web: already installed"
    exit 0
fi
if ! command -v npm >/dev/null 2>&1; then
    echo "web: npm is missing; install Node.js with npm (any version from 20 on), then run this again" >&2
    exit 1
fi
# Not `npm ci`: it wants the parts of other systems in the lock file too, which npm leaves out here. This takes the versions
# and the hashes of the lock file all the same, and does not write it.
npm install --ignore-scripts --no-audit --no-fund --no-save --omit-lockfile-registry-resolved --loglevel=error
cp package-lock.json "$stamp"
echo "web: installed"
