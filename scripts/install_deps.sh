#!/usr/bin/env bash
# Installs the Debian packages that the build needs and that are missing, after saying which.
# Arguments name further packages. With WEFT_INSTALL=0, or without the right to install, it only
# names them and fails.
set -euo pipefail

packages=(g++ cmake ninja-build make git libtomlplusplus-dev nlohmann-json3-dev libcli11-dev
  libxxhash-dev libgtest-dev "$@")

missing=()
for package in "${packages[@]}"; do
  # A tool that was not installed as a package is as good.
  case "$package" in
    g++ | cmake | make | git) command -v "$package" > /dev/null && continue ;;
    ninja-build) command -v ninja > /dev/null && continue ;;
  esac
  status=$(dpkg-query --show --showformat='${Status}' "$package" 2> /dev/null || true)
  [[ $status == "install ok installed" ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

refuse() {
  echo "$1: ${missing[*]}; install them with: apt-get install ${missing[*]}" >&2
  exit 1
}

[[ ${WEFT_INSTALL:-1} == 0 ]] && refuse "missing packages (WEFT_INSTALL=0)"
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  as_root=(sudo -n)
fi
if ! command -v apt-get > /dev/null || ! "${as_root[@]}" true 2> /dev/null; then
  refuse "missing packages"
fi

echo "installing with apt-get: ${missing[*]} (WEFT_INSTALL=0 only names them)"
export DEBIAN_FRONTEND=noninteractive
if ! "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" > /dev/null 2>&1; then
  "${as_root[@]}" apt-get update -q > /dev/null
  "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" > /dev/null
fi
