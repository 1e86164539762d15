# Helpers of the scripts here; source it. Everything speaks one line when it cannot go on.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '== %s\n' "$*"; }
fail() { printf 'nearcache: %s\n' "$*" >&2; exit 2; }

# again COMMAND...: up to three times. A mirror may be out for a moment, a download break off.
again() {
  "$@" || { sleep 5; "$@"; } || { sleep 20; "$@"; }
}

# apt_get WORDS...: waits for another apt that is at work, asks mirrors again.
apt_get() { apt-get -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@"; }

update_and_install() {
  apt_get update && apt_get install -y --no-install-recommends "$@"
}

# apt_install PACKAGE...: installs them if this is root on a system with apt; else says what to do.
apt_install() {
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    fail "please install: $* (with apt: sudo apt-get install $*)"
  fi
  say "apt-get install $*"
  export DEBIAN_FRONTEND=noninteractive
  local log
  log=$(mktemp)
  if ! again update_and_install "$@" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    rm -f "$log"
    fail "apt-get could not install: $*"
  fi
  rm -f "$log"
}

# apt_candidate PACKAGE: the version apt would install, or nothing.
apt_candidate() {
  command -v apt-cache >/dev/null || return 0
  # A bare machine's lists are empty until the first update.
  if [ "$(id -u)" = 0 ] && [ -z "$(ls -A /var/lib/apt/lists 2>/dev/null)" ]; then
    again apt_get update >/dev/null 2>&1 || true
  fi
  apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ && $2 != "(none)" {print $2}'
}

# at_least WANTED VERSION
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# python_of DIR_OR_NAME: prints "3.12" for an interpreter of at least 3.11, else fails.
python_minor() {
  "$1" -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(1); print("%d.%d" % v[:2])' \
    2>/dev/null
}

# all_pythons: one line "minor path" for each minor version >= 3.11 found, newest patch of each.
all_pythons() {
  local python minor
  local found=" "
  for python in $(type -ap python3.15 python3.14 python3.13 python3.12 python3.11 python3 python || true) \
    $(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python 2>/dev/null | sort -rV); do
    minor=$(python_minor "$python") || continue
    case $found in *" $minor "*) continue ;; esac
    found="$found$minor "
    printf '%s %s\n' "$minor" "$python"
  done
}
