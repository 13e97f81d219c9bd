#!/usr/bin/env bash
# Rules that no compiler checks, each a pattern and the reason for the ban.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0

# ban PATTERN REASON PATHSPEC...: no tracked file of the paths may match (Perl syntax).
ban() {
  local pattern=$1 reason=$2
  shift 2
  if git grep -nP "$pattern" -- "$@" | sed "s|\$|    <- $reason|"; then
    failed=1
  fi
}

src=('src/*.h' 'src/*.cpp' 'src/*.cu')
pure=('src/passes' 'src/plan')
sources=("${src[@]}" 'tests/*.h' 'tests/*.cpp' 'tests/*.cu')

ban '\bgetenv\b' 'options come from the config or the command line' \
  "${src[@]}" ':!src/base' ':!src/tools' ':!src/runtime'
ban 'std::cout' 'only the command prints; return text or use the log' \
  "${src[@]}" ':!src/base' ':!src/tools'
ban 'std::(map|set)<(const )?\w+\*' 'the order of addresses differs between runs' "${pure[@]}"
ban '^[^"/]*\brank\b' 'a pass never knows the rank' 'src/passes/*.cpp' 'src/passes/*.h'
ban '<chrono>|std::chrono' 'a pass depends on its inputs alone' "${pure[@]}" ':!src/passes/pass.cpp'
ban '<random>|std::rand\b|\brand\(\)' 'randomness is counter-based (base/philox.h)' "${src[@]}" ':!src/base'
ban 'TODO(?!\(#)' 'a TODO names an issue: TODO(#123)' "${sources[@]}"
ban '^ *// *[-=*/#]{4,}' 'no banner lines' "${sources[@]}"
ban '[^\x00-\x7F]' 'sources are ASCII' "${sources[@]}" 'configs' 'scripts' 'Makefile'
ban '[ \t]+$' 'no white space at the end of a line' "${sources[@]}" 'configs' 'scripts' 'Makefile'
ban '\t' 'no tabs' "${sources[@]}" 'configs' 'scripts'

# The field says shard, barrier, chunk, shared, next to, fix, matmul. Names in backticks are code.
retired='(?<!`)\b([Cc]uts?|[Mm]eetings?|[Pp]ieces?|in common|[Bb]eside|so many|as asked|[Mm]end(ed)?|[Jj]oined|[Hh]omes?|[Mm]atrix products?|[Oo]pen sets?|[Ww]hole (tensors?|model|step))\b(?!`)'
ban "$retired" 'use the word of the field' "${sources[@]}" '*.md' '*.py' 'configs' 'scripts' 'Makefile' ':!scripts/check_style.sh'
ban 'TEST.*(Cut[A-Z]|Meeting|Pieces?|InCommon|Beside|AsAsked|Joined)' 'use the word of the field' 'tests'

# Relative links of pages lead to files.
for file in $(git ls-files '*.md'); do
  while read -r link; do
    if [[ $link != *://* && -n ${link%%#*} && ! -e $(dirname "$file")/${link%%#*} ]]; then
      echo "$file: the link $link leads nowhere"
      failed=1
    fi
  done < <(grep -oP '\]\(\K[^)\s]+(?=\))' "$file")
done

# Looking up in an unordered container is fine; walking over one gives a plan other bytes each time.
for file in $(git ls-files "${pure[@]}"); do
  names=$(grep -oP 'std::unordered_\w+<.*>&? \K\w+(?=[;,){ =])' "$file" | sort -u | paste -sd '|') || true
  if [[ -n $names ]]; then
    ban "for \\(.* : ($names)\\)|\\b($names)\\.begin\\(" 'the order of an unordered container is not ours' "$file"
  fi
done

# too_long LIMIT PATHSPEC...: no tracked file of the paths may have more lines.
too_long() {
  local limit=$1
  shift
  git ls-files "$@" | xargs wc -l /dev/null | awk -v limit="$limit" '
    $2 != "total" && $1 > limit { printf "%s:%d: more than %d lines; split the file\n", $2, $1, limit; bad = 1 }
    END { exit bad }' || failed=1
}
too_long 600 "${sources[@]}"
too_long 10 'src/*/README.md'

# A function starts at the last line at indentation 0 or 2 before the brace that opens it, which
# follows a parameter list or the initializers of members, perhaps lines further down; it ends at the
# brace that closes it. A lambda is part of the function around it.
git ls-files "${sources[@]}" | xargs awk -v limit=80 '
  FNR == 1 { inside = 0; start = 0 }
  inside && $0 == indent "}" {
    if (FNR - start + 1 > limit) {
      printf "%s:%d: function of %d lines, limit %d; split it\n", FILENAME, start, FNR - start + 1, limit
      bad = 1
    }
    inside = 0; start = 0
    next
  }
  inside || /^ *(\/\/|#)/ { next }
  { line = $0; sub(/  \/\/ .*$/, "", line) }
  line ~ /^(  )?([A-Za-z_~]|\[\[)/ {
    start = FNR; text = ""; match(line, /^ */); indent = substr(line, 1, RLENGTH)
  }
  start == 0 { next }
  { text = text line }
  line ~ /[)}]( const| override| noexcept| final| -> .*)* \{$/ && text ~ /\(/ && text !~ /[^A-Za-z]\[[^]]*\]\(/ {
    inside = 1
    next
  }
  line ~ /[;{}:]$/ { start = 0 }
  END { exit bad }' || failed=1

[[ $failed -eq 0 ]] && echo "style: $(git ls-files "${sources[@]}" | wc -l) files"
exit $failed
