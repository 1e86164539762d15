# Programs of another Debian, unpacked beside the system's with the libraries they need; source it
# after lib.sh. Nothing is installed, no root is needed: a program is started by its own loader.
# apt fetches them with an index of its own, from the mirror this machine uses, and checks
# signatures and checksums.

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
ask=-v        # what every program that is fetched here answers
apt_words=()  # of a script that needs other words for apt

# give_up WHAT WHY: in CI a failure; for a user the tests that need it are skipped, loudly.
give_up() {
  [ -z "${CI:-}" ] || fail "no $1 to test with: $2"
  say "NOT FOUND: $1 ($2); its tests are skipped"
  exit 0
}

# beside TARGET PROGRAM SUITE PACKAGE...: .cache/TARGET gets the packages and a starter named as the
# program, which must answer $ask. False if no mirror has them; $why then says why.
beside() {
  local target=$PWD/.cache/$1 program=$2 suite=$3 mirror
  shift 3
  why="it comes by apt"
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return
  why="please install debian-archive-keyring"
  [ -e "$keyring" ] || return
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work"/{etc/apt.conf.d,lists/partial,archives/partial,debs}
  : >"$work/status"
  while read -r mirror; do
    rm -rf "$work/root" "$work"/debs/*
    if fetch "$mirror" "$suite" "$@" >"$work/log" 2>&1 && unpack "$program" >>"$work/log" 2>&1; then
      rm -rf "$target" && mkdir -p "$(dirname "$target")" && mv "$work/root" "$target"
      say "$("$target/$(basename "$program")" "$ask" 2>&1 | cut -d' ' -f1-3), of Debian $suite"
      rm -rf "$work"
      return
    fi
  done < <(mirrors | awk '!seen[$0]++')
  tail -n 5 "$work/log" >&2
  rm -rf "$work"
  why="apt could not fetch it"
  return 1
}

# By what the mirror's files say, if they were fetched once; by its name; then the public one.
mirrors() {
  apt-get indextargets --format '$(LABEL)|$(SITE)' 2>/dev/null | sed -n 's/^Debian|//p' || true
  apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -E '/debian/?$' || true
  echo http://deb.debian.org/debian
}

# Apart from the machine's proxies and credentials, nothing of its apt is used or changed.
own_apt() {
  apt-get -qq -o Dir::Etc::SourceList="$work/etc/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
    -o Dir::State::Lists="$work/lists" -o Dir::State::Status="$work/status" \
    -o Dir::Cache="$work" -o Dir::Cache::Archives="$work/archives" \
    -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 \
    ${apt_words[@]+"${apt_words[@]}"} "$@"
}

fetch() { # MIRROR SUITE PACKAGE...
  printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$1" "$2" >"$work/etc/sources.list"
  shift 2
  own_apt update && (cd "$work/debs" && again own_apt download "$@")
}

unpack() { # PROGRAM
  local deb loader starter
  for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$work/root" || return; done
  # Not the one in lib64: up to Debian 11 that is a link to the system's own.
  loader=$(cd "$work/root" && ls -d {,usr/}lib/*/ld-linux*.so* 2>/dev/null | head -n 1)
  [ -n "$loader" ] || return
  local machine
  machine=$(basename "$(dirname "$loader")")
  starter=$work/root/$(basename "$1")
  cat >"$starter" <<END
#!/bin/sh
here=\$(dirname "\$0")
libraries=\$here/lib/$machine:\$here/usr/lib/$machine
exec "\$here/$loader" --library-path "\$libraries" "\$here/$1" "\$@"
END
  chmod +x "$starter" && "$starter" "$ask" >/dev/null
}
