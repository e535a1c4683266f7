# `rdmascope collect` as a service: how soon a hook runs after a PCIe error; an application that drains on the warning, and
# one that does not. `actions` has the CLOCK_MONOTONIC time of what was done.
# order: 35
# timeout: 240
# needs: rdmascope drain_on_warning

fabric || fail 'the fabric did not come up'
modprobe aer_inject || fail 'no aer_inject'
card=$(card_pci)

# collect_start NAME ARGUMENTS…: `rdmascope collect` with the configuration NAME.toml, observations in NAME.jsonl.
collect_start() {
  local name=$1
  shift
  rdmascope --probe-budget off --config "$name.toml" collect --socket "$OUT/$name.sock" --record "$name.jsonl" 2> "$name.err" &
  collector=$!
  wait_for 20 test -S "$name.sock" || { cat "$name.err"; fail "$name: no socket after 20 s"; }
  # The probes are attached once a line tells so.
  probed() { grep '"type":"probes"' "$name.jsonl" | grep -qE '"attached":([5-9]|[1-9][0-9])'; }
  wait_for 40 probed || { cat "$name.err"; fail "$name: no probes after 40 s"; }
}

# collect_stop NAME: ends it as systemd would, and notes how long the end took.
collect_stop() {
  action stop collector="$1"
  kill -TERM $collector
  wait $collector
  echo $? > "$1.rc"
  action stopped collector="$1"
  cat "$1.err"
  [ "$(cat "$1.rc")" = 0 ] || fail "collect ended with $(cat "$1.rc")"
}

step 'a hook for each of 60 PCIe errors'
# Each error is a finding of its own: it is over before the next comes.
cat > hooks.toml << END
[[hook]]
command = ["/payload/hooked", "$OUT/hooked.jsonl"]
rules = ["pcie.aer_fatal"]
debounce = "0s"
[rule]
window_s = 0.1
[rule.pcie_aer_fatal]
clear_s = 0.2
END
collect_start hooks
aer "$card" uncorrected 4000 60 500 > injected.jsonl
told() { [ "$(wc -l < hooked.jsonl)" -ge 60 ]; }
wait_for 5 told || echo "$(wc -l < hooked.jsonl) hooks"
collect_stop hooks

step 'an application that drains on the warning'
: > failovers.toml
collect_start failovers
subscribe failovers.sock > told.jsonl &
drain_on_warning rxec rxec --to rxea rxeb --socket "$OUT/failovers.sock" --seconds 15 --pause-us 2000 > drained.jsonl &
application=$!
wait_for 30 grep -q '"connected"' drained.jsonl || { cat drained.jsonl; fail 'no connection'; }
# The statistics of both ends are there when the sweep has told of it.
posted() { grep '"type":"qp_stats"' failovers.jsonl | grep -q "\"device\":\"$1\""; }
wait_for 30 posted rxec || fail 'no traffic on the card'
aer "$card" uncorrected 4000 >> actions
wait_for 30 grep -q '"resumed"' drained.jsonl || { cat drained.jsonl; fail 'it did not drain'; }
action card_down netdev="$(card_netdev)" device=rxec
ip link set "$(card_netdev)" down
wait_for 30 grep -q DOWN /sys/class/infiniband/rxec/ports/1/state || fail 'rxec stayed up'
wait $application || { cat drained.jsonl; fail 'the application failed'; }
cat drained.jsonl
action card_up netdev="$(card_netdev)" device=rxec
fabric || fail 'the fabric did not come back'

step 'an application that does not'
drain_on_warning rxea rxeb --to rxec rxec --no-subscribe --seconds 15 --pause-us 2000 > abrupt.jsonl &
application=$!
wait_for 30 grep -q '"connected"' abrupt.jsonl || { cat abrupt.jsonl; fail 'no connection'; }
sleep 2
action carrier_down netdev=va device=rxea
ip -n r link set ra down
wait_for 30 grep -q DOWN /sys/class/infiniband/rxea/ports/1/state || fail 'rxea stayed up'
wait $application || { cat abrupt.jsonl; fail 'the application failed'; }
cat abrupt.jsonl
action carrier_up netdev=va device=rxea
fabric || fail 'the fabric did not come back'
collect_stop failovers
rdmascope failovers --recording failovers.jsonl --json > failovers.json || fail 'no report'
rdmascope failovers --recording failovers.jsonl | tee failovers.txt
cat actions
