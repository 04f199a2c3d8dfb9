#!/usr/bin/env bash
# Re-creates src/deepdraft/report/page/vendor from the npm registry: uPlot, the chart library of the HTML report.
# `--check` only compares what is there with what the registry has.
set -euo pipefail
version=1.6.32
vendor="$(cd "$(dirname "$0")/.." && pwd)/src/deepdraft/report/page/vendor"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

cd "$work"
npm pack --silent "uplot@$version" > /dev/null
tar xzf "uplot-$version.tgz"
mkdir fresh
cp package/dist/uPlot.iife.min.js fresh/uplot.js
cp package/dist/uPlot.min.css fresh/uplot.css
cp package/LICENSE fresh/LICENSE.uplot
echo "uPlot $version, MIT, https://github.com/leeoniya/uPlot; files as published on npm" > fresh/VERSION

if [ "${1:-}" = --check ]; then
  diff -r fresh "$vendor"
else
  mkdir -p "$vendor"
  cp fresh/* "$vendor"/
fi
