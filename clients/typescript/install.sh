#!/bin/sh
# Installs what checks the client library (TypeScript; see package.json) into clients/typescript/node_modules.
# Safe to run again: it does nothing when what is installed matches the lock file.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cd "$here"

stamp=node_modules/.installed-lock
if [ -f node_modules/typescript/bin/tsc ] && cmp -s package-lock.json "$stamp"; then
    echo "clients/typescript: already installed"
    exit 0
fi
if ! command -v npm >/dev/null 2>&1; then
    echo "clients/typescript: npm is missing; install Node.js with npm (any version from 20 on), then run this again" >&2
    exit 1
fi
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
cp package-lock.json "$stamp"
echo "clients/typescript: installed"
