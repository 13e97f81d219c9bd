#!/usr/bin/env bash
# Fails when a generated page is not what the command prints now.
# Usage: scripts/check_docs.sh build/weft
set -euo pipefail
cd "$(dirname "$0")/.."

weft=${1:?usage: scripts/check_docs.sh WEFT}
failed=0

# page FILE COMMAND...: compares the file with what the command prints.
page() {
  local file=$1
  shift
  if ! diff -u "$file" <("$weft" "$@"); then
    echo "$file: out of date; run: $weft $* > $file" >&2
    failed=1
  fi
}

page docs/config.md opt --list-keys
page docs/ops.md opt --list-ops --markdown
page docs/passes.md opt --list-passes --markdown
exit $failed
