#!/usr/bin/env bash
# Checks that each folder of src/ includes only the folders below it. The table is the architecture:
# a pass cannot see a model, the planner cannot see the runtime, the runtime cannot see the graph.
set -euo pipefail
cd "$(dirname "$0")/.."

# "folder: what it may include in addition to itself"; a path with a dot is a single header.
rules='
base:
config: base
graph: base config
model: base config graph
passes: base config graph
plan: base config graph
runtime: base plan graph/type.h graph/op.h
data: base graph/type.h
checkpoint: base graph/type.h
compile: base config graph model passes plan runtime
train: base config graph model passes plan runtime data checkpoint compile
tools: base config graph model passes plan runtime data checkpoint compile train
'

git ls-files 'src/*.h' 'src/*.cpp' 'src/*.cu' | xargs grep -n '^ *#include "' /dev/null | awk -v rules="$rules" '
  BEGIN {
    count = split(rules, lines, "\n")
    for (i = 1; i <= count; ++i) {
      if (split(lines[i], halves, ":") < 1) continue
      folder = halves[1]
      known[folder] = 1
      text[folder] = halves[2] == "" ? " nothing" : halves[2]
      allowed[folder, folder] = 1
      number = split(halves[2], names, " ")
      for (j = 1; j <= number; ++j) allowed[folder, names[j]] = 1
    }
  }
  {
    split($0, place, ":")
    split(place[1], path, "/")
    folder = path[2]
    match($0, /"[^"]*"/)
    header = substr($0, RSTART + 1, RLENGTH - 2)
    target = substr(header, 1, index(header, "/") - 1)
    ++seen
    if (!(folder in known)) reason = "folder " folder " is not in the layer table"
    else if (target == "") reason = "includes start at the source root"
    else if (!((folder, target) in allowed) && !((folder, header) in allowed))
      reason = folder " may include:" text[folder]
    else next
    printf "%s:%s: includes \"%s\"; %s\n", place[1], place[2], header, reason
    failed = 1
  }
  END {
    if (!failed) printf "layers: %d includes\n", seen
    exit failed
  }'
