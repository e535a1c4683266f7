# What `rdmascope doctor` and the screen say when something is missing, and what goes on all the same. The last payload:
# the kernel's lockdown ends only with the boot.
# order: 90
# timeout: 400
# needs: rdmascope

fabric || fail 'the fabric did not come up'
modprobe overlay || fail 'no overlay'
[ -e /sys/kernel/security/lockdown ] || mount -t securityfs securityfs /sys/kernel/security || echo 'no securityfs'
libraries=/usr/lib/x86_64-linux-gnu

# doctor NAME COMMAND…: what it says when it is run by COMMAND, and its exit code.
doctor() {
  local name=$1
  step "$name"
  shift
  "$@" rdmascope doctor --json > "$name.json" 2> "$name.err"
  echo $? > "$name.rc"
  cat "$name.err"
}
# self NAME COMMAND…: the Self pane when it is run by COMMAND, once it shows the probes.
self() {
  local name=$1
  shift
  screen_start "$name" "$@" rdmascope
  t send-keys 9
  wait_for 60 shows 'of 9 probes attached' || { capture "$name"; fail "$name: no probes on the screen"; }
  wait_for 10 shows ' attached  ' || true
  capture "$name"
  screen_stop "$name"
}
# without PATHS COMMAND…: COMMAND in a mount namespace of its own, where the directories PATHS are empty.
without() { unshare -m sh -c 'for path in $0; do mount -t tmpfs tmpfs "$path" || exit 99; done; exec "$@"' "$@"; }
# unlinked FILES COMMAND…: COMMAND where FILES of the libraries' folder are not there.
unlinked() {
  rm -rf /tmp/layer
  mkdir -p /tmp/layer/upper /tmp/layer/work
  unshare -m sh -c '
    mount -t overlay -o "lowerdir=$0,upperdir=/tmp/layer/upper,workdir=/tmp/layer/work" overlay "$0" || exit 99
    cd "$0" && rm -r $1 || exit 99
    cd / && shift && exec "$@"' "$libraries" "$@"
}
user=(setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all)
# The same user with some capabilities.
capable() {
  local caps=$1
  shift
  setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps="-all,$caps" --ambient-caps="-all,$caps" "$@"
}

doctor well env
doctor user "${user[@]}"
doctor capable capable +bpf,+perfmon,+sys_admin
doctor no_btf without /sys/kernel/btf
doctor no_tracefs without '/sys/kernel/debug /sys/kernel/tracing'
doctor no_libibverbs unlinked 'libibverbs.so.1*'
doctor no_provider unlinked libibverbs
self user_self "${user[@]}"

lockdown=/sys/kernel/security/lockdown
if ! [ -w $lockdown ]; then
  echo 'this kernel has no lockdown' | tee lockdown.absent
  exit 0
fi
echo integrity > $lockdown || fail 'no lockdown to integrity'
doctor integrity env
echo confidentiality > $lockdown || fail 'no lockdown to confidentiality'
doctor confidentiality env
doctor confidentiality_untold without /sys/kernel/security
self confidentiality_self env
